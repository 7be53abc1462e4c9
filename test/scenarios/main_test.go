// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kindred-project/kindred/test/images"
)

// The two clusters that scenarios share.
var (
	real      = sharedCluster{}
	simulated = sharedCluster{args: []string{"--no-node", "--simulated-nodes", "1"}}
)

// binary is the program under test.
var binary = os.Getenv("KINDRED_BIN")

// userRuntime is the CRI endpoint of a runtime with the images below, which real nodes use instead of a private containerd.
var userRuntime = os.Getenv("KINDRED_RUNTIME")

// Images on each real node. They differ only by name. With a tag other than latest, nodes do not
// pull them.
const (
	image     = "busybox:v1"
	nextImage = "busybox:v2"
)

// archive is the file with these images, or the reason why it could not be built.
var archive = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "kindred-scenarios-")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "busybox.tar")
	return file, images.Busybox(file, "docker.io/library/"+image, "docker.io/library/"+nextImage)
})

func TestMain(m *testing.M) {
	serveEtcd()
	if binary == "" {
		binary = "../../bin/kindred"
	}
	var err error
	if binary, err = filepath.Abs(binary); err == nil {
		_, err = os.Stat(binary)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "no kindred to test: %v; run \"make build\" or set KINDRED_BIN\n", err)
		os.Exit(1)
	}
	if err := chooseTempDir(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	flag.Parse()
	// Scenarios wait more than they use the CPU.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	code := m.Run()
	for name, shared := range map[string]*sharedCluster{"real": &real, "simulated": &simulated} {
		if err := shared.end(code != 0); err != nil {
			fmt.Fprintf(os.Stderr, "the shared cluster (%s): %v\n", name, err)
			code = 1
		}
	}
	if file, err := archive(); err == nil {
		err = os.RemoveAll(filepath.Dir(file))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

// sharedCluster is started for the first scenario that needs it.
type sharedCluster struct {
	args    []string
	once    sync.Once
	cluster *cluster
	err     error
}

func (s *sharedCluster) get(t *testing.T) *cluster {
	t.Helper()
	s.once.Do(func() {
		if s.cluster, s.err = newCluster(); s.err == nil {
			s.err = s.cluster.start(s.args...)
		}
		if s.err == nil && len(s.args) == 0 {
			s.err = s.cluster.loadImages()
		}
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.cluster
}

func (s *sharedCluster) end(failed bool) error {
	if s.cluster == nil {
		return nil
	}
	if failed {
		fmt.Fprint(os.Stderr, s.cluster.logs())
	}
	return s.cluster.remove()
}

// withNode returns a namespace on the cluster with a real node.
func withNode(t *testing.T) *session {
	t.Helper()
	needContainers(t)
	t.Parallel()
	return newSession(t, real.get(t))
}

// withoutNode returns a namespace on the cluster with a simulated node.
func withoutNode(t *testing.T) *session {
	t.Helper()
	t.Parallel()
	return newSession(t, simulated.get(t))
}

// needContainers skips a scenario on a machine that cannot run containers. In CI it fails instead,
// because nothing else runs these scenarios.
func needContainers(t *testing.T) {
	t.Helper()
	err := canRunContainers()
	if err == nil {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	t.Skip(err)
}

func canRunContainers() error {
	if os.Geteuid() != 0 {
		return errors.New("real containers need root")
	}
	for program, pkg := range map[string]string{"containerd": "containerd", "runc": "runc", "iptables": "iptables", "nft": "nftables", "busybox": "busybox-static"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("no %s on PATH: apt-get install %s", program, pkg)
		}
	}
	if err := enoughDisk(os.TempDir()); err != nil {
		return err
	}
	_, err := archive()
	return err
}

// memoryDisk is used for temporary files if the usual place has too little room. 4 GB are more than the scenarios need.
const (
	memoryDisk     = "/dev/shm"
	memoryDiskRoom = 4 << 30
)

// chooseTempDir moves temporary files to memory if their place is so full that nodes would report disk pressure there, unless
// the user chose the place.
func chooseTempDir() error {
	if os.Getenv("TMPDIR") != "" || enoughDisk(os.TempDir()) == nil || enoughDisk(memoryDisk) != nil {
		return nil
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(memoryDisk, &disk); err != nil || disk.Bavail*uint64(disk.Bsize) < memoryDiskRoom {
		return err
	}
	fmt.Fprintf(os.Stderr, "less than a tenth of the disk of %s is free: temporary files are in %s\n", os.TempDir(), memoryDisk)
	return os.Setenv("TMPDIR", memoryDisk)
}

// enoughDisk returns an error that would otherwise only show as Pending pods: a node with disk
// pressure accepts none.
func enoughDisk(dir string) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if disk.Bavail*10 < disk.Blocks {
		return fmt.Errorf("real containers need a tenth of the disk of %s free, or their node reports disk pressure: free some, or set TMPDIR", dir)
	}
	return nil
}
