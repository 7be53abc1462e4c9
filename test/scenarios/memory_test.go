// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	memoryOfCluster = 1 << 30
	largeObjects    = 10_000
	largeObject     = 30 << 10
	manyLists       = 200
	manyWatches     = 5_000
)

// TestMemoryLimit: a process with 1 GiB of memory, by its cgroup, is not killed by 10,000 objects of 30 kB, 5,000 watches, and 200 lists of all
// objects at once: when they were just created, beside the watches, and after a restart. What does not fit is refused with 429.
func TestMemoryLimit(t *testing.T) {
	t.Setenv("TMPDIR", "/var/tmp") // files in a tmpfs, as /tmp may be, are memory of the cgroup
	group := newMemoryGroup(t, memoryOfCluster)
	c := ownClusterUnder(t, group.under(), "--no-node", "--simulated-nodes", "1")
	client := c.client(t)
	createLarge(t, client)
	t.Logf("objects are created: %s", group)
	listLarge(t, c, group)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	watches := manyRequests(t, c, manyWatches, []string{""}, func(int) string { return "/api/v1/namespaces/default/pods?watch=1&timeoutSeconds=600" })
	watches.open(ctx)
	t.Logf("watches: %s, %s", watches, group)
	if watches.failed.Load() > 0 {
		t.Error("watches failed otherwise than with 429")
	}
	listLarge(t, c, group)
	stop()
	if !c.running() {
		t.Fatalf("the cluster ended: %v", c.up.cmd.ProcessState)
	}

	c.terminate(t)
	c.again(t)
	listLarge(t, c, group)
	if killed := group.killed(t); killed > 0 {
		t.Errorf("%d processes were killed", killed)
	}
	all, err := c.client(t).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(all.Items) < largeObjects {
		t.Errorf("%d objects afterwards, %v", len(all.Items), err)
	}
}

// listLarge lists all objects with many clients at once. Other clients work as usual meanwhile.
func listLarge(t *testing.T, c *cluster, group memoryGroup) {
	t.Helper()
	client := c.client(t)
	lists := manyRequests(t, c, manyLists, []string{
		"application/vnd.kubernetes.protobuf", "application/json", "application/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io",
	}, func(i int) string {
		if i%5 == 0 { // the state now, from the store
			return "/api/v1/configmaps?limit=20000&resourceVersionMatch=Exact&resourceVersion=" + newestVersion(t, client)
		}
		return "/api/v1/configmaps"
	})
	listed, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	lists.open(listed)
	for range 20 {
		if _, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			t.Fatalf("a request beside the lists: %v", err)
		}
	}
	<-listed.Done()
	t.Logf("lists: %s, %s", lists, group)
	if lists.refused.Load() == 0 {
		t.Error("no list was refused")
	}
	if lists.failed.Load() > 0 {
		t.Error("lists failed otherwise than with 429")
	}
}

// createLarge creates the objects with 16 clients. Each has data of its own, because equal data is kept once.
func createLarge(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	text := strings.Repeat("0123456789abcdef", largeObject/16)
	names := make(chan string)
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for name := range names {
				o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"text": name + text}}
				if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
					t.Errorf("create %s: %v", name, err)
				}
			}
		})
	}
	for i := range largeObjects {
		names <- fmt.Sprintf("large-%05d", i)
	}
	close(names)
	clients.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func newestVersion(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	list, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	return list.ResourceVersion
}

// requests are GET requests that are open at the same time.
type requests struct {
	clients  []*http.Client
	urls     []string
	accept   []string
	accepted atomic.Int32
	refused  atomic.Int32
	failed   atomic.Int32
	lastErr  atomic.Value
}

// manyRequests returns n requests over connections of their own for each 200.
func manyRequests(t *testing.T, c *cluster, n int, accept []string, path func(i int) string) *requests {
	t.Helper()
	r := &requests{accept: accept}
	for i := range n {
		if i%200 == 0 {
			config := rest.CopyConfig(c.config(t))
			config.Dial = (&net.Dialer{}).DialContext // clients with equal configurations would share connections
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			r.clients = append(r.clients, client)
		}
		r.urls = append(r.urls, c.config(t).Host+path(i))
	}
	return r
}

// open sends all requests, and returns when each was answered or ctx has ended. It reads the accepted ones until ctx ends.
func (r *requests) open(ctx context.Context) {
	var answered sync.WaitGroup
	for i, url := range r.urls {
		answered.Add(1)
		go func() {
			response, err := r.get(ctx, r.clients[i/200], url, r.accept[i%len(r.accept)])
			answered.Done()
			if err != nil {
				return
			}
			defer response.Body.Close()
			_, _ = io.Copy(io.Discard, response.Body)
		}()
	}
	answered.Wait()
}

func (r *requests) get(ctx context.Context, client *http.Client, url, accept string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	response, err := client.Do(request)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		r.failed.Add(1)
		r.lastErr.Store(err.Error())
	case response.StatusCode == http.StatusOK:
		r.accepted.Add(1)
	case response.StatusCode == http.StatusTooManyRequests:
		r.refused.Add(1)
	default:
		r.failed.Add(1)
		r.lastErr.Store(response.Status)
	}
	return response, err
}

func (r *requests) String() string {
	return fmt.Sprintf("%d accepted, %d refused, %d failed (%v)", r.accepted.Load(), r.refused.Load(), r.failed.Load(), r.lastErr.Load())
}

// memoryGroup is a cgroup with a memory limit, of either version.
type memoryGroup struct {
	dir string
	v2  bool
}

func newMemoryGroup(t *testing.T, limit int) memoryGroup {
	t.Helper()
	g := memoryGroup{dir: "/sys/fs/cgroup/memory"}
	if _, err := os.Stat(g.dir); err != nil {
		g = memoryGroup{dir: "/sys/fs/cgroup", v2: true}
	}
	g.dir = filepath.Join(g.dir, "kindred-scenario-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("needs a cgroup: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(g.dir); err != nil {
			t.Error(err)
		}
	})
	if _, err := os.Stat(g.limitFile()); err != nil {
		t.Skipf("needs the memory controller of cgroups: %v", err)
	}
	g.limit(t, strconv.Itoa(limit))
	return g
}

func (g memoryGroup) limitFile() string {
	if g.v2 {
		return filepath.Join(g.dir, "memory.max")
	}
	return filepath.Join(g.dir, "memory.limit_in_bytes")
}

// limit sets the limit, in bytes.
func (g memoryGroup) limit(t *testing.T, bytes string) {
	t.Helper()
	if err := os.WriteFile(g.limitFile(), []byte(bytes), 0); err != nil {
		t.Fatal(err)
	}
}

// used returns what the group uses, with file pages, in bytes.
func (g memoryGroup) used(t *testing.T) int {
	t.Helper()
	n, err := g.read("memory.usage_in_bytes", "memory.current")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// read reads a number from a file of the group, which has another name in each version.
func (g memoryGroup) read(v1, v2 string) (int, error) {
	file := v1
	if g.v2 {
		file = v2
	}
	text, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// under returns a command line that runs a command in the group.
func (g memoryGroup) under() []string {
	return []string{"sh", "-c", "echo $$ > " + g.dir + `/cgroup.procs && exec "$@"`, "sh"}
}

// killed returns how many processes of the group were killed for lack of memory.
func (g memoryGroup) killed(t *testing.T) int {
	t.Helper()
	file := "memory.oom_control"
	if g.v2 {
		file = "memory.events"
	}
	text, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if count, found := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); found {
			n, err := strconv.Atoi(count)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("%s has no oom_kill: %s", file, text)
	return 0
}

// String returns the peak memory usage of the group, which includes file pages.
func (g memoryGroup) String() string {
	peak, _ := g.read("memory.max_usage_in_bytes", "memory.peak")
	return fmt.Sprintf("at most %d MB used", peak/1e6)
}
