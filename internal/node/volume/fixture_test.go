// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/mounts"
	"github.com/kindred-project/kindred/internal/node/rootdir"
)

// known holds the objects of one namespace.
type known struct {
	mu         sync.Mutex
	configMaps map[string]map[string]string
	secrets    map[string]map[string][]byte
	released   []types.UID
}

func (k *known) ConfigMap(_ context.Context, _ *v1.Pod, name string) (*v1.ConfigMap, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	data, ok := k.configMaps[name]
	if !ok {
		return nil, apierrors.NewNotFound(v1.Resource("configmap"), name)
	}
	return &v1.ConfigMap{Data: data, BinaryData: map[string][]byte{"binary": {0, 255}}}, nil
}

func (k *known) Secret(_ context.Context, _ *v1.Pod, name string) (*v1.Secret, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	data, ok := k.secrets[name]
	if !ok {
		return nil, apierrors.NewNotFound(v1.Resource("secret"), name)
	}
	return &v1.Secret{Data: data}, nil
}

func (k *known) Release(uid types.UID) { k.released = append(k.released, uid) }

func (k *known) set(name string, data map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.configMaps[name] = data
}

type fixture struct {
	*Manager
	api    *known
	clock  *clocktesting.FakeClock
	client *fake.Clientset
	tokens int
	refuse error // the error of token requests
	failed chan error
	events []string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{
		api: &known{
			configMaps: map[string]map[string]string{"c": {"one": "1", "two": "2"}},
			secrets:    map[string]map[string][]byte{"s": {"pass": []byte("word")}},
		},
		clock:  clocktesting.NewFakeClock(epoch),
		client: fake.NewClientset(),
		failed: make(chan error, 100),
	}
	f.client.PrependReactor("create", "serviceaccounts", f.issue)
	layout := rootdir.Layout{Root: t.TempDir()}
	t.Cleanup(func() { _ = mounts.DetachAt(layout.Root) })
	f.Manager = New(Options{
		Layout: layout, Client: f.client, Objects: f.api, Clock: f.clock,
		Allocatable: func() v1.ResourceList {
			return v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourceCPU: resource.MustParse("2")}
		},
		Failed:     func(_ *v1.Pod, err error) { f.failed <- err },
		NodeLabels: func() map[string]string { return map[string]string{v1.LabelHostname: "node"} },
		Event: func(_ *v1.ObjectReference, eventType, reason, message string) {
			f.events = append(f.events, eventType+" "+reason+" "+message)
		},
	})
	return f
}

// issue implements the token subresource: tokens are numbers and expire after an hour.
func (f *fixture) issue(action clienttesting.Action) (bool, runtime.Object, error) {
	if f.refuse != nil {
		return true, nil, f.refuse
	}
	request := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest).DeepCopy()
	f.tokens++
	life := int64(3600)
	if request.Spec.ExpirationSeconds != nil {
		life = *request.Spec.ExpirationSeconds
	}
	request.Spec.ExpirationSeconds = &life
	request.Status = authenticationv1.TokenRequestStatus{
		Token:               fmt.Sprintf("%s:%v:%d", request.Spec.BoundObjectRef.UID, request.Spec.Audiences, f.tokens),
		ExpirationTimestamp: metav1.NewTime(f.clock.Now().Add(time.Duration(life) * time.Second)),
	}
	return true, request, nil
}

// podWith returns a pod with one container, which mounts all volumes at /<name>.
func podWith(volumes ...v1.Volume) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid", Labels: map[string]string{"a": "1"}},
		Spec: v1.PodSpec{
			ServiceAccountName: "sa",
			Containers:         []v1.Container{{Name: "c"}},
			Volumes:            volumes,
		},
	}
	for _, volume := range volumes {
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts,
			v1.VolumeMount{Name: volume.Name, MountPath: "/" + volume.Name})
	}
	return pod
}

func volumeOf(name string, source v1.VolumeSource) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: source}
}

func configMapVolume(name, configMap string) v1.Volume {
	return volumeOf(name, v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
		LocalObjectReference: v1.LocalObjectReference{Name: configMap}}})
}

func tokenVolume(name string, projection v1.ServiceAccountTokenProjection) v1.Volume {
	return volumeOf(name, v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
		Sources: []v1.VolumeProjection{{ServiceAccountToken: &projection}}}})
}

func (f *fixture) at(t *testing.T, pod *v1.Pod, volume string) string {
	t.Helper()
	v, err := f.open(pod, find(pod, volume))
	if err != nil {
		t.Fatal(err)
	}
	return v.path()
}

func (f *fixture) prepared(t *testing.T, pod *v1.Pod) {
	t.Helper()
	if err := f.Prepare(context.Background(), pod); err != nil {
		t.Fatal(err)
	}
}

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
}
