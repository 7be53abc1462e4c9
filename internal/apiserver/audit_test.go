// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/server/options"

	"github.com/kindred-project/kindred/internal/auth/audit"
)

// auditPolicy logs requests for ConfigMaps with bodies, those for Secrets without, and no others.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: RequestResponse, namespaces: [default], resources: [{group: "", resources: [configmaps]}]}
- {level: Metadata, namespaces: [default], resources: [{group: "", resources: [secrets]}]}
- {level: None}
`

// collected has the events that a webhook received.
type collected struct {
	mu     sync.Mutex
	events []auditv1.Event
}

func (c *collected) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var list auditv1.EventList
	if err := json.NewDecoder(r.Body).Decode(&list); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, list.Items...)
}

func (c *collected) all() []auditv1.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events
}

// recorded returns the events in a log file.
func recorded(t *testing.T, path string) []auditv1.Event {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var events []auditv1.Event
	for line := range strings.Lines(string(content)) {
		var event auditv1.Event
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		events = append(events, event)
	}
	return events
}

// TestAudit: the requests of the policy are logged once, with their user, in the log and at the
// webhook, whether they come over the network or in process.
func TestAudit(t *testing.T) {
	dir, hook := t.TempDir(), &collected{}
	service := httptest.NewServer(hook)
	t.Cleanup(service.Close)
	o := options.NewAuditOptions()
	o.PolicyFile, o.LogOptions.Path, o.WebhookOptions.ConfigFile = filepath.Join(dir, "policy"), filepath.Join(dir, "log", "audit.log"), filepath.Join(dir, "kubeconfig")
	o.WebhookOptions.BatchOptions.BatchConfig.MaxBatchWait = 10 * time.Millisecond
	for path, content := range map[string]string{
		o.PolicyFile: auditPolicy,
		o.WebhookOptions.ConfigFile: fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x","clusters":[{"name":"x","cluster":{"server":%q}}],"contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}],"users":[{"name":"x","user":{}}]}`,
			service.URL),
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config, err := audit.Load(o)
	if err != nil {
		t.Fatal(err)
	}
	s := own(t, func(c *Config) { c.Audit = config })

	const object = `{"apiVersion":"v1","kind":%q,"metadata":{"name":"one"},"data":{"key":"dmFsdWU="}}`
	for _, resource := range [][2]string{{"configmaps", "ConfigMap"}, {"secrets", "Secret"}, {"services", "Service"}} {
		s.do(t, s.admin, http.MethodPost, "/api/v1/namespaces/default/"+resource[0], fmt.Sprintf(object, resource[1]))
	}
	_ = s.as(t, "jane").CoreV1().RESTClient().Get().Namespace("default").Resource("secrets").Name("one").Do(t.Context()).Error()
	if got := s.delete(t, short, "/api/v1/namespaces/default/secrets/one", metav1.DeleteOptions{}); !got.wentShort() {
		t.Errorf("a deletion that is logged without body did not use the fast path: %s", got.body)
	}
	if got := s.delete(t, short, "/api/v1/namespaces/default/configmaps/one", metav1.DeleteOptions{}); got.wentShort() {
		t.Error("a deletion that is logged with body used the fast path")
	}

	check := func(events []auditv1.Event) error {
		var got []string
		for _, event := range events {
			got = append(got, fmt.Sprintf("%s %s %s/%s %d %s %t", event.User.Username, event.Verb, event.ObjectRef.Resource, event.ObjectRef.Name,
				event.ResponseStatus.Code, event.Level, event.RequestObject != nil && event.ResponseObject != nil))
		}
		want := []string{
			"kubernetes-admin create configmaps/one 201 RequestResponse true",
			"kubernetes-admin create secrets/one 201 Metadata false",
			"jane get secrets/one 403 Metadata false",
			collectorUser + " delete secrets/one 200 Metadata false",
			collectorUser + " delete configmaps/one 200 RequestResponse true",
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			return fmt.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return nil
	}
	events := recorded(t, o.LogOptions.Path)
	if err := check(events); err != nil {
		t.Fatal(err)
	}
	if err := within(10*time.Second, func() error { return check(hook.all()) }); err != nil {
		t.Error("webhook:", err)
	}
	if got := events[3].ResponseStatus; got.Status != metav1.StatusSuccess || got.Details == nil || got.Details.UID == "" {
		t.Errorf("the response to a deletion is logged as %v", got)
	}
	if got := events[2].Annotations["authorization.k8s.io/decision"]; got != "forbid" {
		t.Errorf("the decision is %q", got)
	}
	if user := (authnv1.UserInfo{Username: "jane", Groups: []string{"system:authenticated"}}); events[2].User.String() != user.String() {
		t.Errorf("the user is %v", events[2].User)
	}
}
