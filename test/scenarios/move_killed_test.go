// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func TestMoveKilled(t *testing.T) {
	m := newMigration(t)
	m.kubectl("create", "deployment", "web", "--image=any:v1", "--replicas=2")
	m.rolledOut("web")
	m.stack()
	m.movesThoughKilled()
	m.there.rolledOut("web")
	m.there.table("NAME READY UP-TO-DATE AVAILABLE AGE\nweb 2/2 2 2 *", "get", "deployment", "web")
}

// movesThoughKilled moves a Deployment and the stack. The process is killed after each of its
// writes and restarted, until a run has nothing left to write. At any time each object exists in
// one of the clusters, and the source loses nothing before the target has everything.
func (m *migration) movesThoughKilled() {
	m.Helper()
	t, tripwire := m.T, &tripwire{}
	from, to := tripwire.before(t, m.cluster), tripwire.before(t, m.there.cluster)
	all := m.copied(m.session)
	runs := 0
	for {
		if runs++; runs > 200 {
			t.Fatal("it does not get through in 200 runs")
		}
		p := tripwire.start(t, m.cluster.command("move", "deployment/web", "stack/top", "-n", m.namespace, "--kubeconfig", from, "--to", to, "--yes", "--drop-finalizers"))
		<-p.done
		// The process may have been killed after the very last write.
		if strings.Contains(p.out.String(), "it may have been moved already") {
			break
		}
		if code := p.cmd.ProcessState.ExitCode(); code == 0 {
			break
		} else if code > 0 {
			t.Fatalf("run %d, which was to be killed, ended with %d:\n%s", runs, code, p.out)
		}
		here, there := m.copied(m.session), m.copied(m.there)
		for _, object := range all {
			if !slices.Contains(here, object) && !slices.Contains(there, object) {
				t.Fatalf("after run %d, %s is nowhere", runs, object)
			}
		}
		if len(here) < len(all) && len(there) < len(all) {
			t.Fatalf("after run %d, %d of %d objects are at the source and %d at the target", runs, len(here), len(all), len(there))
		}
	}
	// Each object is at least created, removed and released, each in a separate run.
	if runs < 3*len(all) {
		t.Errorf("it got through in %d runs: not every write was the last of one", runs)
	}
	t.Logf("it took %d runs", runs)
	m.checkStack()
	m.podsGo()
	m.prints("", "get", "stacks,secrets", "-o", "name")
}

// tripwire kills a process after one of its writes. It is a proxy in front of the API servers that
// the process uses.
type tripwire struct {
	// let is the number of writes before that one.
	let int

	mu      sync.Mutex
	armed   bool
	writes  int
	process *process
}

// before returns a kubeconfig for a cluster behind the tripwire.
func (w *tripwire) before(t *testing.T, c *cluster) string {
	t.Helper()
	return listenIn(t, c, func(in *http.Request, _ string) {
		if in.Method != http.MethodGet && in.URL.Query().Get("dryRun") == "" && !strings.Contains(in.URL.Path, "accessreviews") {
			w.written()
		}
	})
}

// listenIn returns a kubeconfig for a cluster behind a proxy, which calls heard after the response
// to each request.
func listenIn(t *testing.T, c *cluster, heard func(in *http.Request, body string)) string {
	t.Helper()
	config := c.config(t)
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(server)
	proxy.Transport = transport
	between := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		body, err := io.ReadAll(in.Body)
		if err != nil {
			t.Error(err)
		}
		in.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(out, in)
		heard(in, string(body))
	}))
	t.Cleanup(between.Close)
	file := clientcmdapi.NewConfig()
	file.Clusters["c"] = &clientcmdapi.Cluster{Server: between.URL}
	file.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	file.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// start starts a process that is killed.
func (w *tripwire) start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	p, err := startProcess(cmd)
	if err != nil {
		t.Fatal(err)
	}
	w.armed, w.writes, w.process = true, 0, p
	return p
}

func (w *tripwire) written() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writes++; !w.armed || w.writes <= w.let {
		return
	}
	w.armed = false
	w.process.end()
}
