// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// definitions is the number of CustomResourceDefinitions, each in its own group.
const definitions = 20

// TestReadyMeansThatEveryResourceAnswers: as soon as /readyz succeeds, every resource answers, and
// discovery lists it: at the first start of a cluster, after a restart, and after a crash during
// the creation of CustomResourceDefinitions.
func TestReadyMeansThatEveryResourceAnswers(t *testing.T) {
	t.Parallel()
	served := paths{}
	served.builtIn(t, ownCluster(t, "--no-node"))

	c, err := newCluster()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.remove(); err != nil {
			t.Error(err)
		}
	})
	startAndAsk(t, c, "first start", served)
	define(t, c, "group", definitions)
	c.kill(t)
	for i := range definitions {
		served.custom(fmt.Sprintf("group%d.example", i))
	}
	startAndAsk(t, c, "start after a crash amid definitions", served)
	c.kill(t)
	startAndAsk(t, c, "start after a crash", served)
	c.terminate(t)
	startAndAsk(t, c, "restart", served)
}

// paths are URL paths that must be answered, with the words that the response must contain.
type paths map[string][]string

func (p paths) add(path string, words ...string) { p[path] = append(p[path], words...) }

// custom adds the paths of a CustomResourceDefinition.
func (p paths) custom(group string) {
	p.add("/apis", `"`+group+`"`)
	p.add("/apis/", `"`+group+`"`)
	p.add("/apis/"+group, `"v1"`)
	p.add("/apis/"+group+"/v1", `"things"`)
	p.add("/apis/"+group+"/v1/things", `"ThingList"`)
}

// ask sends all requests concurrently.
func (p paths) ask(client rest.Interface) error {
	var mu sync.Mutex
	var wait sync.WaitGroup
	var failed []error
	for path, words := range p {
		wait.Go(func() {
			text, err := client.Get().AbsPath(path).SetHeader("Accept", accept(path)).DoRaw(context.Background())
			var missing []string
			for _, word := range words {
				if !strings.Contains(string(text), word) {
					missing = append(missing, word)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", path, err))
			} else if len(missing) > 0 {
				failed = append(failed, fmt.Errorf("%s lacks %s", path, strings.Join(missing, ", ")))
			}
		})
	}
	wait.Wait()
	slices.SortFunc(failed, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(failed...)
}

// accept asks for discovery of all groups at /apis, as kubectl does, and for the list of groups at "/apis/".
func accept(path string) string {
	if path == "/apis" || path == "/api" {
		return "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	}
	return "application/json"
}

// builtIn adds the paths of every cluster, from the discovery of one that has been ready for a
// while.
func (p paths) builtIn(t *testing.T, c *cluster) {
	t.Helper()
	time.Sleep(5 * time.Second)
	client := c.client(t)
	_, lists, err := client.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		root := "/apis/" + list.GroupVersion
		if gv.Group == "" {
			root = "/api/v1"
			p.add("/api")
		} else {
			p.add("/apis", `"`+gv.Group+`"`)
			p.add("/apis/", `"`+list.GroupVersion+`"`)
			p.add("/apis/"+gv.Group, `"`+gv.Version+`"`)
		}
		p.add(root)
		for _, resource := range list.APIResources {
			if slices.Contains(resource.Verbs, "list") {
				p.add(root + "/" + resource.Name)
			}
		}
	}
	text, err := client.Discovery().RESTClient().Get().AbsPath("/openapi/v3").DoRaw(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var index struct {
		Paths map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		t.Fatal(err)
	}
	for path := range maps.Keys(index.Paths) {
		p.add("/openapi/v3", `"`+path+`"`)
		p.add("/openapi/v3/" + path)
	}
	p.add("/openapi/v2")
	if err := p.ask(client.Discovery().RESTClient()); err != nil {
		t.Fatalf("a cluster that has been ready for long: %v", err)
	}
}

// startAndAsk sends the requests as soon as /readyz succeeds, and again later.
func startAndAsk(t *testing.T, c *cluster, start string, served paths) {
	t.Helper()
	_ = os.Remove(c.kubeconfig())
	began := time.Now()
	started := make(chan error)
	go func() { started <- c.start("--no-node") }()
	defer func() {
		if err := <-started; err != nil {
			t.Fatal(err)
		}
	}()
	client := firstReady(t, c)
	took := time.Since(began)
	for i := range 5 {
		if err := served.ask(client); err != nil {
			t.Errorf("%s: ready after %v, asked %d times before:\n%v", start, took, i, err)
		}
	}
}

func firstReady(t *testing.T, c *cluster) rest.Interface {
	t.Helper()
	for deadline := time.Now().Add(startLimit); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig())
		if err != nil {
			continue
		}
		config.QPS = -1
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			continue
		}
		if _, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(context.Background()); err == nil {
			return client.Discovery().RESTClient()
		}
	}
	t.Fatal("the cluster is not ready: ", c.logs())
	return nil
}

// define creates CustomResourceDefinitions without waiting for them to be served.
func define(t *testing.T, c *cluster, prefix string, n int) {
	t.Helper()
	client, err := clientset.NewForConfig(c.config(t))
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		group := fmt.Sprintf("%s%d.example", prefix, i)
		preserve := true
		_, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(context.Background(), &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "things." + group},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: group,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"},
				Scope: apiextensionsv1.NamespaceScoped,
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: &preserve,
					}},
				}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}
