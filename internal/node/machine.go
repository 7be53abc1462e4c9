// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"
)

// machine has the facts of the machine that do not change while it runs.
type machine struct {
	cpus       int64
	cores      int // those of the topology, as sockets
	sockets    int
	memory     int64 // bytes
	disk       int64 // bytes of the file system of the root directory
	swap       int64 // bytes
	hugePages  map[string]int64
	machineID  string
	systemUUID string
	bootID     string
	kernel     string
	osImage    string
	appArmor   bool // enforced by the kernel
	seLinux    bool // likewise
}

func readMachine(rootDir string) (machine, error) {
	memory, err := meminfo("MemTotal")
	if err != nil {
		return machine{}, err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(rootDir, &disk); err != nil {
		return machine{}, fmt.Errorf("read the size of the file system of %s: %w", rootDir, err)
	}
	swap, err := meminfo("SwapTotal")
	if err != nil {
		return machine{}, err
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return machine{}, fmt.Errorf("read the kernel's version: %w", err)
	}
	return machine{
		cpus:       int64(goruntime.NumCPU()),
		memory:     memory,
		disk:       int64(disk.Blocks) * disk.Bsize,
		swap:       swap,
		hugePages:  hugePages(),
		machineID:  line("/etc/machine-id"),
		systemUUID: cmp.Or(line("/sys/class/dmi/id/product_uuid"), line("/etc/machine-id")),
		bootID:     line("/proc/sys/kernel/random/boot_id"),
		kernel:     unix.ByteSliceToString(name.Release[:]),
		osImage:    osRelease(),
		appArmor:   appArmorEnabled(),
		seLinux:    seLinuxEnabled(),
	}, nil
}

func meminfo(field string) (int64, error) {
	file, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		if name != field {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		return kib << 10, err
	}
	return 0, fmt.Errorf("/proc/meminfo has no %s", field)
}

// hugePages returns the bytes in pre-allocated huge pages by size ("2Mi").
func hugePages() map[string]int64 {
	pages := map[string]int64{}
	dirs, _ := filepath.Glob("/sys/kernel/mm/hugepages/hugepages-*kB")
	for _, dir := range dirs {
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), "hugepages-"), "kB"), 10, 64)
		if err != nil {
			continue
		}
		count, _ := strconv.ParseInt(line(filepath.Join(dir, "nr_hugepages")), 10, 64)
		pages[resource.NewQuantity(kib<<10, resource.BinarySI).String()] = count * kib << 10
	}
	return pages
}

// ordinaryMemory returns the memory that is not reserved for huge pages, in bytes. The memory cgroups do not count huge pages as
// used, so that they would seem to be available (upstream's feature gate HugepageAwareEviction).
func (m machine) ordinaryMemory() int64 {
	memory := m.memory
	for _, bytes := range m.hugePages {
		memory -= bytes
	}
	return max(memory, 0)
}

// appArmorEnabled reports whether the kernel enforces AppArmor profiles, and shows them.
func appArmorEnabled() bool {
	_, err := os.Stat("/sys/kernel/security/apparmor")
	return err == nil && strings.HasPrefix(line("/sys/module/apparmor/parameters/enabled"), "Y")
}

// seLinuxEnabled reports whether the kernel has an SELinux policy.
func seLinuxEnabled() bool {
	_, err := os.Stat("/sys/fs/selinux/enforce")
	return err == nil
}

// pageSizes returns the sizes of the machine's huge pages in bytes.
func (m machine) pageSizes() []int64 {
	var sizes []int64
	for size := range m.hugePages {
		quantity := resource.MustParse(size)
		sizes = append(sizes, quantity.Value())
	}
	return sizes
}

// line returns the content of a file with one line, or "" if it cannot be read.
func line(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// osRelease returns the name of the operating system.
func osRelease() string {
	data, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return goruntime.GOOS
	}
	for _, l := range strings.Split(string(data), "\n") {
		if name, ok := strings.CutPrefix(l, "PRETTY_NAME="); ok {
			return strings.Trim(name, `"`)
		}
	}
	return goruntime.GOOS
}
