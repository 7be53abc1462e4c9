// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/kindred-project/kindred/internal/containerd"
	"github.com/kindred-project/kindred/internal/node/config"
	"github.com/kindred-project/kindred/test/images"
)

// bed is an agent with a real containerd, and a fake clientset as the API.
type bed struct {
	*testing.T
	client  *fake.Clientset
	options Options
	agent   *Agent
	stop    func()

	eventsMu sync.Mutex
	events   []string // of all agents
}

func newBed(t *testing.T) *bed {
	t.Helper()
	if missing := containerd.Missing(); len(missing) > 0 {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI must have %v: %s", missing, containerd.HowToGet(missing))
		}
		t.Skipf("needs %v: %s", missing, containerd.HowToGet(missing))
	}
	dir := t.TempDir()
	id := fmt.Sprintf("%x", sha256.Sum256([]byte(dir)))[:8]
	names, err := containerd.NamesFor(id)
	if err != nil {
		t.Fatal(err)
	}
	o := containerd.Options{
		Names: names, Root: filepath.Join(dir, "containerd"), LogFile: filepath.Join(dir, "containerd.log"),
		RunDir: filepath.Join("/run/kindred-test", id),
	}
	t.Cleanup(func() {
		if err := containerd.Reset(context.Background(), o); err != nil {
			t.Errorf("reset: %v", err)
		}
	})
	r, err := containerd.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "busybox.tar")
	if err := images.Busybox(file); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ImportImages(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	b := &bed{T: t, client: versioned(fake.NewClientset()), options: Options{
		Name: nodeName, Endpoint: r.Endpoint, RootDir: filepath.Join(dir, "node"), Owner: names.ID,
		CgroupParent: names.PodCgroup, IPs: []string{"127.0.0.1"}, ClusterDNS: []string{"10.0.0.10"},
		Version: "v1.37.1", Config: config.Default(),
	}}
	b.options.Config.PodLogsDir = filepath.Join(dir, "pod-logs")
	b.options.Client = b.client
	return b
}

// versioned makes a client give pods resource versions, as an API does. Without them, the agent may take the older of two
// states of a pod for the newer one, and computes its next patch from that.
func versioned(client *fake.Clientset) *fake.Clientset {
	var last atomic.Int64
	next := func() string { return strconv.FormatInt(last.Add(1), 10) }
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if pod, ok := action.(clienttesting.CreateAction).GetObject().(*v1.Pod); ok {
			pod.ResourceVersion = next()
		}
		return false, nil, nil
	})
	var patching sync.Mutex
	patch := clienttesting.ObjectReaction(client.Tracker())
	client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patching.Lock()
		defer patching.Unlock()
		_, o, err := patch(action)
		if err != nil {
			return true, nil, err
		}
		pod := o.(*v1.Pod).DeepCopy()
		pod.ResourceVersion = next()
		return true, pod, client.Tracker().Update(action.GetResource(), pod, action.GetNamespace())
	})
	return client
}

// start runs an agent until stopped, and waits for its node to be ready.
func (b *bed) start() {
	b.Helper()
	events := record.NewFakeRecorder(1000)
	b.options.Recorder = events
	begin := time.Now()
	agent, err := New(b.options)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("connected after %v", time.Since(begin))
	b.agent = agent
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := agent.Run(ctx); err != nil {
			b.Error(err)
		}
	}()
	var recorded []string
	listened := make(chan struct{})
	go func() {
		defer close(listened)
		for {
			select {
			case e := <-events.Events:
				b.eventsMu.Lock()
				b.events = append(b.events, e)
				b.eventsMu.Unlock()
				recorded = append(recorded, fmt.Sprintf("%s %s", time.Now().Format("05.000"), e))
			case <-done:
				return
			}
		}
	}()
	b.stop = func() {
		cancel()
		<-done
		<-listened
		b.Logf("events:\n%s", strings.Join(recorded, "\n"))
	}
	select {
	case <-agent.Ready():
		b.Logf("ready after %v", time.Since(begin))
	case <-time.After(20 * time.Second):
		b.Fatal("the node is not ready after 20 s")
	}
}

// untilEvent waits for an event that begins with text.
func (b *bed) untilEvent(text string) {
	b.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		b.eventsMu.Lock()
		for _, e := range b.events {
			if strings.HasPrefix(e, text) {
				b.eventsMu.Unlock()
				return
			}
		}
		b.eventsMu.Unlock()
	}
	b.Fatalf("no event %q in %q", text, b.events)
}

func (b *bed) create(p *v1.Pod) *v1.Pod {
	b.Helper()
	p.Namespace, p.Spec.NodeName = "default", nodeName
	p.UID = types.UID(fmt.Sprintf("%x", sha256.Sum256([]byte(p.Name)))[:12])
	if p.Spec.DNSPolicy == "" {
		p.Spec.DNSPolicy = v1.DNSDefault
	}
	p, err := b.client.CoreV1().Pods("default").Create(b.Context(), p, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func busybox(name string, command string) v1.Container {
	return v1.Container{
		Name: name, Image: images.BusyboxName, ImagePullPolicy: v1.PullNever, Command: []string{"sh", "-c", command},
		TerminationMessagePath: "/dev/termination-log",
	}
}

func podOf(name string, containers ...v1.Container) *v1.Pod {
	grace := int64(5)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PodSpec{Containers: containers, RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace},
	}
}

// until waits for a state of the pod.
func (b *bed) until(name, what string, wanted func(*v1.Pod) bool) *v1.Pod {
	b.Helper()
	var p *v1.Pod
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		var err error
		if p, err = b.client.CoreV1().Pods("default").Get(b.Context(), name, metav1.GetOptions{}); err != nil {
			b.Fatal(err)
		}
		if wanted(p) {
			return p
		}
	}
	b.Fatalf("pod %s is not %s but %+v", name, what, p.Status)
	return nil
}

func podReady(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// delete deletes a pod gracefully, as the API does, and waits until the agent deletes it finally.
func (b *bed) delete(name string) {
	b.Helper()
	b.beginDelete(name)
	b.untilGone(name)
}

func (b *bed) beginDelete(name string) {
	b.Helper()
	for {
		p, err := b.client.CoreV1().Pods("default").Get(b.Context(), name, metav1.GetOptions{})
		if err != nil {
			b.Fatal(err)
		}
		now := metav1.Now()
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, p.Spec.TerminationGracePeriodSeconds
		if _, err = b.client.CoreV1().Pods("default").Update(b.Context(), p, metav1.UpdateOptions{}); err == nil {
			return
		}
		if !apierrors.IsConflict(err) {
			b.Fatal(err)
		}
	}
}

func (b *bed) untilGone(name string) {
	b.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if _, err := b.client.CoreV1().Pods("default").Get(b.Context(), name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return
		}
	}
	b.Fatalf("pod %s was not deleted", name)
}
