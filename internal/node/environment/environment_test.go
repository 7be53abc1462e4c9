// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"io"
	"io/fs"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// known holds the objects of one namespace.
type known struct {
	configMaps map[string]map[string]string
	secrets    map[string]map[string][]byte
}

func (k known) ConfigMap(_ context.Context, _ *v1.Pod, name string) (*v1.ConfigMap, error) {
	data, ok := k.configMaps[name]
	if !ok {
		return nil, apierrors.NewNotFound(v1.Resource("configmap"), name)
	}
	return &v1.ConfigMap{Data: data}, nil
}

func (k known) Secret(_ context.Context, _ *v1.Pod, name string) (*v1.Secret, error) {
	data, ok := k.secrets[name]
	if !ok {
		return nil, apierrors.NewNotFound(v1.Resource("secret"), name)
	}
	return &v1.Secret{Data: data}, nil
}

func service(namespace, name, ip string, ports ...v1.ServicePort) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1.ServiceSpec{ClusterIP: ip, Ports: ports},
	}
}

func builder(t *testing.T, services ...*v1.Service) *Builder {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, s := range services {
		if err := indexer.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	return New(Options{
		Objects: known{
			configMaps: map[string]map[string]string{"c": {"one": "1", "two": "2"}},
			secrets:    map[string]map[string][]byte{"s": {"pass": []byte("word")}},
		},
		Services:       corelisters.NewServiceLister(indexer),
		ServicesSynced: func() bool { return true },
		Allocatable:    func() v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")} },
		OpenFile: func(_ types.UID, volume, path string) (io.ReadCloser, error) {
			if volume != "v" || path != "env" {
				return nil, fs.ErrNotExist
			}
			return io.NopCloser(strings.NewReader("A='x'\nB='y'\n")), nil
		},
	})
}

func environ(t *testing.T, b *Builder, pod *v1.Pod, container v1.Container) ([]string, error) {
	t.Helper()
	if pod.Name == "" {
		pod.Name, pod.Namespace = "p", "ns"
	}
	pod.Spec.Containers = []v1.Container{container}
	pairs, err := b.For(context.Background(), pod, &container)
	var out []string
	for _, pair := range pairs {
		out = append(out, pair.Key+"="+string(pair.Value))
	}
	return out, err
}

func configMapKey(name, key string, optional bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: key, Optional: &optional}}
}

func secretKey(name, key string, optional bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: key, Optional: &optional}}
}

func fileKey(path, key string, optional bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "v", Path: path, Key: key, Optional: &optional}}
}

func fromConfigMap(name, prefix string, optional bool) v1.EnvFromSource {
	return v1.EnvFromSource{Prefix: prefix, ConfigMapRef: &v1.ConfigMapEnvSource{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Optional: &optional}}
}

func fromSecret(name, prefix string, optional bool) v1.EnvFromSource {
	return v1.EnvFromSource{Prefix: prefix, SecretRef: &v1.SecretEnvSource{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Optional: &optional}}
}

func TestFor(t *testing.T) {
	for _, tc := range []struct {
		name    string
		envFrom []v1.EnvFromSource
		env     []v1.EnvVar
		want    []string
		err     string
	}{
		{name: "a duplicate name has the last value in the first position",
			env:  []v1.EnvVar{{Name: "B", Value: "1"}, {Name: "A", Value: "2"}, {Name: "B", Value: "3"}},
			want: []string{"B=3", "A=2"}},
		{name: "references to earlier variables",
			env:  []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "$(A)-$(C)-$$(A)"}, {Name: "C", Value: "late"}},
			want: []string{"A=1", "B=1-$(C)-$(A)", "C=late"}},
		{name: "envFrom with prefix, sorted",
			envFrom: []v1.EnvFromSource{fromConfigMap("c", "p_", false), fromSecret("s", "", false)},
			want:    []string{"p_one=1", "p_two=2", "pass=word"}},
		{name: "env overrides envFrom, and can refer to it",
			envFrom: []v1.EnvFromSource{fromConfigMap("c", "", false)},
			env:     []v1.EnvVar{{Name: "one", Value: "[$(one)$(two)]"}},
			want:    []string{"one=[12]", "two=2"}},
		{name: "keys of ConfigMap, Secret and file",
			env:  []v1.EnvVar{{Name: "A", ValueFrom: configMapKey("c", "one", false)}, {Name: "B", ValueFrom: secretKey("s", "pass", false)}, {Name: "C", ValueFrom: fileKey("env", "B", false)}},
			want: []string{"A=1", "B=word", "C=y"}},
		{name: "fields and resources",
			env: []v1.EnvVar{
				{Name: "N", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
				{Name: "CPU", ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.cpu"}}}},
			want: []string{"N=p", "CPU=4"}},
		{name: "optional and missing is left out",
			envFrom: []v1.EnvFromSource{fromConfigMap("none", "", true), fromSecret("none", "", true)},
			env: []v1.EnvVar{
				{Name: "A", ValueFrom: configMapKey("none", "k", true)}, {Name: "B", ValueFrom: configMapKey("c", "none", true)},
				{Name: "C", ValueFrom: secretKey("none", "k", true)}, {Name: "D", ValueFrom: secretKey("s", "none", true)},
				{Name: "E", ValueFrom: fileKey("env", "none", true)}, {Name: "F", ValueFrom: fileKey("none", "A", true)},
				{Name: "G"}},
			want: []string{"G="}},
		{name: "no ConfigMap", envFrom: []v1.EnvFromSource{fromConfigMap("none", "", false)}, err: `configmap "none" not found`},
		{name: "no Secret", env: []v1.EnvVar{{Name: "A", ValueFrom: secretKey("none", "k", false)}}, err: `secret "none" not found`},
		{name: "no key in ConfigMap", env: []v1.EnvVar{{Name: "A", ValueFrom: configMapKey("c", "k", false)}}, err: `couldn't find key k in ConfigMap ns/c`},
		{name: "no key in Secret", env: []v1.EnvVar{{Name: "A", ValueFrom: secretKey("s", "k", false)}}, err: `couldn't find key k in Secret ns/s`},
		{name: "no key in file", env: []v1.EnvVar{{Name: "A", ValueFrom: fileKey("env", "k", false)}}, err: `environment variable key "k" not found in file "env"`},
		{name: "no file", env: []v1.EnvVar{{Name: "A", ValueFrom: fileKey("none", "k", false)}}, err: `couldn't parse env file`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := environ(t, builder(t), &v1.Pod{}, v1.Container{Name: "c", EnvFrom: tc.envFrom, Env: tc.env})
			message := ""
			if err != nil {
				message = err.Error()
			}
			if message != tc.err {
				t.Fatalf("error %q, want %q", message, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); tc.err == "" && diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestServiceVariables(t *testing.T) {
	services := []*v1.Service{
		service("default", "kubernetes", "10.0.0.1", v1.ServicePort{Name: "https", Port: 443, Protocol: v1.ProtocolTCP}),
		service("ns", "my-db", "10.0.0.2", v1.ServicePort{Name: "a", Port: 1}, v1.ServicePort{Name: "b-c", Port: 2, Protocol: v1.ProtocolUDP}),
		service("ns", "headless", "None", v1.ServicePort{Port: 1}),
		service("ns", "external", ""),
		service("other", "hidden", "10.0.0.3", v1.ServicePort{Port: 1}),
	}
	api := []string{
		"KUBERNETES_PORT=tcp://10.0.0.1:443",
		"KUBERNETES_PORT_443_TCP=tcp://10.0.0.1:443",
		"KUBERNETES_PORT_443_TCP_ADDR=10.0.0.1",
		"KUBERNETES_PORT_443_TCP_PORT=443",
		"KUBERNETES_PORT_443_TCP_PROTO=tcp",
		"KUBERNETES_SERVICE_HOST=10.0.0.1",
		"KUBERNETES_SERVICE_PORT=443",
		"KUBERNETES_SERVICE_PORT_HTTPS=443",
	}
	own := []string{
		"MY_DB_PORT=tcp://10.0.0.2:1",
		"MY_DB_PORT_1_TCP=tcp://10.0.0.2:1", "MY_DB_PORT_1_TCP_ADDR=10.0.0.2", "MY_DB_PORT_1_TCP_PORT=1", "MY_DB_PORT_1_TCP_PROTO=tcp",
		"MY_DB_PORT_2_UDP=udp://10.0.0.2:2", "MY_DB_PORT_2_UDP_ADDR=10.0.0.2", "MY_DB_PORT_2_UDP_PORT=2", "MY_DB_PORT_2_UDP_PROTO=udp",
		"MY_DB_SERVICE_HOST=10.0.0.2", "MY_DB_SERVICE_PORT=1", "MY_DB_SERVICE_PORT_A=1", "MY_DB_SERVICE_PORT_B_C=2",
	}
	for _, links := range []bool{true, false} {
		pod := &v1.Pod{Spec: v1.PodSpec{EnableServiceLinks: &links}}
		got, err := environ(t, builder(t, services...), pod, v1.Container{Name: "c"})
		if err != nil {
			t.Fatal(err)
		}
		want := api
		if links {
			want = append(append([]string{}, api...), own...)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("links %v: %s", links, diff)
		}
	}
}

func TestDeclaredVariablesOverrideServices(t *testing.T) {
	b := builder(t, service("default", "kubernetes", "10.0.0.1", v1.ServicePort{Port: 443}))
	got, err := environ(t, b, &v1.Pod{}, v1.Container{Env: []v1.EnvVar{
		{Name: "A", Value: "$(KUBERNETES_SERVICE_HOST)"}, {Name: "KUBERNETES_SERVICE_HOST", Value: "mine"}}})
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, pair := range got {
		if strings.HasPrefix(pair, "KUBERNETES_SERVICE_HOST=") {
			count++
		}
	}
	if count != 1 || got[len(got)-2] != "A=10.0.0.1" || got[len(got)-1] != "KUBERNETES_SERVICE_HOST=mine" {
		t.Errorf("got %v", got)
	}
}

func TestNoEnvironmentBeforeServicesSync(t *testing.T) {
	b := builder(t)
	b.options.ServicesSynced = func() bool { return false }
	if _, err := environ(t, b, &v1.Pod{}, v1.Container{}); err == nil {
		t.Error("built an environment that may lack KUBERNETES_SERVICE_HOST")
	}
}

func TestExpand(t *testing.T) {
	lookup := func(name string) (string, bool) {
		value, ok := map[string]string{"A": "a", "": "empty", "B": "$(A)", "A$": "odd"}[name]
		return value, ok
	}
	for in, want := range map[string]string{
		"":                 "",
		"plain":            "plain",
		"$(A)":             "a",
		"x$(A)y$(A)":       "xaya",
		"$(NO)":            "$(NO)",
		"$$(A)":            "$(A)",
		"$$$(A)":           "$a",
		"$$$$(A)":          "$$(A)",
		"$(A":              "$(A",
		"$((A))":           "$((A))",
		"$(B)":             "$(A)",
		"$":                "$",
		"$$":               "$",
		"$A":               "$A",
		"a$":               "a$",
		"$()":              "empty",
		"$(A$)":            "odd",
		"$(A $(A)":         "$(A $(A)",
		"\u00e9$(A)\u00e9": "\u00e9a\u00e9",
	} {
		if got := Expand(in, lookup); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	f.Add("$(A)$$(B)$")
	f.Fuzz(func(t *testing.T, s string) {
		// Doubling each $ escapes any text.
		escaped := strings.ReplaceAll(s, "$", "$$")
		if got := Expand(escaped, func(string) (string, bool) { return "bad", true }); got != s {
			t.Errorf("%q, escaped and expanded, is %q", s, got)
		}
	})
}

func TestParseFile(t *testing.T) {
	for _, tc := range []struct {
		name, content, want, err string
		found                    bool
	}{
		{name: "plain", content: "K='v'", want: "v", found: true},
		{name: "among others", content: "# comment\n\n  A='1'\n\tK='v' # note\nB='2'\n", want: "v", found: true},
		{name: "several lines", content: "K='a\nb\n\nc'\n", want: "a\nb\n\nc", found: true},
		{name: "no expansion", content: `K='$HOME "\n"'`, want: `$HOME "\n"`, found: true},
		{name: "empty", content: "K=''", found: true},
		{name: "blank after = is empty", content: "K= 'v'", found: true},
		{name: "equals sign in value", content: "K='a=b'", want: "a=b", found: true},
		{name: "absent", content: "A='1'"},
		{name: "no =", content: "\nK", err: "line 2: missing '='"},
		{name: "no name", content: "='v'", err: "empty variable name"},
		{name: "blank before =", content: "K ='v'", err: "whitespace before '=' is not allowed"},
		{name: "no quotes", content: "K=v", err: "value must be enclosed in single quotes"},
		{name: "open quote", content: "K='v\nw", err: "unclosed single quote"},
		{name: "rest after quote", content: "K='v'w", err: "unexpected content after closing quote"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, found, err := parseFile(strings.NewReader(tc.content), "K")
			if tc.err != "" {
				if err == nil || !strings.HasSuffix(err.Error(), tc.err) {
					t.Errorf("error %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil || got != tc.want || found != tc.found {
				t.Errorf("got %q, %v, %v; want %q, %v", got, found, err, tc.want, tc.found)
			}
		})
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add("K='v'\n# c\nA='multi\nline'")
	f.Fuzz(func(t *testing.T, content string) {
		value, found, err := parseFile(strings.NewReader(content), "K")
		if (err != nil || !found) && value != "" {
			t.Errorf("value %q without success", value)
		}
		if strings.Contains(value, "'") {
			t.Errorf("value %q contains its own quote", value)
		}
	})
}

func TestAPIServerAddressIsReplaced(t *testing.T) {
	api := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
		Spec:       v1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []v1.ServicePort{{Name: "https", Port: 443}}},
	}
	got := serviceVariables(redirectAPI([]*v1.Service{api}, netip.MustParseAddrPort("10.244.7.1:6443")))
	for name, want := range map[string]string{
		"KUBERNETES_SERVICE_HOST": "10.244.7.1", "KUBERNETES_SERVICE_PORT": "6443", "KUBERNETES_SERVICE_PORT_HTTPS": "6443",
	} {
		if got[name] != want {
			t.Errorf("%s = %q, want %q", name, got[name], want)
		}
	}
	if api.Spec.ClusterIP != "10.96.0.1" {
		t.Error("the cached Service was modified")
	}
}
