// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/node/criconfig"
	nodepod "github.com/kindred-project/kindred/internal/node/pod"
)

var _ nodepod.Images = &Manager{}

// registry is a runtime with the registry that it pulls from.
type registry struct {
	mu       sync.Mutex
	present  map[string]*runtimeapi.Image // by name and ID
	password string                       // required by pulls, unless empty
	inspect  error
	broken   error
	block    chan struct{} // blocks pulls, unless nil
	pulls    int
	statuses int
}

func (r *registry) ImageStatus(_ context.Context, spec *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statuses++
	return &runtimeapi.ImageStatusResponse{Image: r.present[spec.Image]}, r.inspect
}

func (r *registry) PullImage(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	r.mu.Lock()
	r.pulls++
	block := r.block
	r.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil {
		return "", r.broken
	}
	if auth.GetPassword() != r.password && r.password != "" {
		return "", errors.New("denied")
	}
	r.present[spec.Image] = &runtimeapi.Image{Id: "id-of-" + spec.Image, Size: 7, Username: "app"}
	r.present["id-of-"+spec.Image] = r.present[spec.Image]
	return "id-of-" + spec.Image, nil
}

// secrets holds the Secrets of one namespace.
type secrets map[string]*v1.Secret

func (s secrets) Secret(_ context.Context, _ *v1.Pod, name string) (*v1.Secret, error) {
	secret, ok := s[name]
	if !ok {
		return nil, apierrors.NewNotFound(v1.Resource("secret"), name)
	}
	return secret, nil
}

func pullSecret(name, uid, password string) *v1.Secret {
	return &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)},
		Type:       v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(
			fmt.Sprintf(`{"auths":{"registry.test":{"username":"u","password":%q}}}`, password))},
	}
}

type fixture struct {
	*Manager
	registry *registry
	clock    *clocktesting.FakeClock
	secrets  secrets
	recorder *record.FakeRecorder
	cancel   context.CancelFunc
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{
		registry: &registry{present: map[string]*runtimeapi.Image{}},
		clock:    clocktesting.NewFakeClock(time.Unix(1e9, 0)),
		secrets:  secrets{},
		recorder: record.NewFakeRecorder(1000),
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	f.cancel = cancel
	f.Manager = New(ctx, Options{
		Service: f.registry, Secrets: f.secrets, Recorder: f.recorder, Clock: f.clock, RecordsDir: t.TempDir(),
	})
	return f
}

func (f *fixture) events() []string {
	var out []string
	for len(f.recorder.Events) > 0 {
		out = append(out, <-f.recorder.Events)
	}
	return out
}

func podOf(uid, image string, policy v1.PullPolicy, pullSecrets ...string) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: uid, UID: types.UID(uid)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: image, ImagePullPolicy: policy}}},
	}
	for _, name := range pullSecrets {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: name})
	}
	return pod
}

func (f *fixture) ensure(pod *v1.Pod) (criconfig.Image, *nodepod.ImageError) {
	image, err := f.EnsurePresent(context.Background(), pod, &pod.Spec.Containers[0], nil)
	var failure *nodepod.ImageError
	errors.As(err, &failure)
	return image, failure
}

const name = "registry.test/app:1"

func TestPolicies(t *testing.T) {
	for _, tc := range []struct {
		name    string
		image   string
		policy  v1.PullPolicy
		present bool
		change  func(r *registry)
		pulls   int
		reason  string
		message string
		events  []string
	}{
		{name: "present", policy: v1.PullIfNotPresent, present: true,
			events: []string{`Normal Pulled Container image "registry.test/app:1" already present on machine and can be accessed by the pod`}},
		{name: "present, never pulled", policy: v1.PullNever, present: true,
			events: []string{`Normal Pulled Container image "registry.test/app:1" already present on machine and can be accessed by the pod`}},
		{name: "absent, pulled", policy: v1.PullIfNotPresent, pulls: 1, events: []string{
			`Normal Pulling Pulling image "registry.test/app:1"`,
			`Normal Pulled Successfully pulled image "registry.test/app:1" in 0s (0s including waiting). Image size: 7 bytes.`}},
		{name: "present, always pulled", policy: v1.PullAlways, present: true, pulls: 1, events: []string{
			`Normal Pulling Pulling image "registry.test/app:1"`,
			`Normal Pulled Successfully pulled image "registry.test/app:1" in 0s (0s including waiting). Image size: 7 bytes.`}},
		{name: "absent, never pulled", policy: v1.PullNever,
			reason: "ErrImageNeverPull", message: `Container image "registry.test/app:1" is not present with pull policy of Never`,
			events: []string{
				`Warning ErrImageNeverPull Container image "registry.test/app:1" is not present with pull policy of Never`,
				`Warning Failed Error: ErrImageNeverPull`}},
		{name: "invalid name", image: "UPPER", policy: v1.PullAlways,
			reason:  "InvalidImageName",
			message: `Failed to apply default image tag "UPPER": couldn't parse image name "UPPER": invalid reference format: repository name (library/UPPER) must be lowercase`,
			events: []string{
				`Warning InspectFailed Failed to apply default image tag "UPPER": couldn't parse image name "UPPER": invalid reference format: repository name (library/UPPER) must be lowercase`,
				`Warning Failed Error: InvalidImageName`}},
		{name: "inspection fails", policy: v1.PullIfNotPresent, change: func(r *registry) { r.inspect = errors.New("boom") },
			reason: "ImageInspectError", message: `Failed to inspect image "": boom`,
			events: []string{`Warning InspectFailed Failed to inspect image "": boom`, `Warning Failed Error: ImageInspectError`}},
		{name: "pull fails", policy: v1.PullAlways, pulls: 1, change: func(r *registry) { r.broken = errors.New("boom") },
			reason: "ErrImagePull", message: "boom",
			events: []string{
				`Normal Pulling Pulling image "registry.test/app:1"`,
				`Warning Failed Failed to pull image "registry.test/app:1": boom`,
				`Warning Failed Error: ErrImagePull`}},
		{name: "registry unavailable", policy: v1.PullAlways, pulls: 1, change: func(r *registry) { r.broken = errors.New("RegistryUnavailable: no route") },
			reason: "RegistryUnavailable", message: "image pull failed for registry.test/app:1 because the registry is unavailable: no route",
			events: []string{
				`Normal Pulling Pulling image "registry.test/app:1"`,
				`Warning Failed Failed to pull image "registry.test/app:1": RegistryUnavailable: no route`,
				`Warning Failed Error: RegistryUnavailable`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			if tc.present {
				f.registry.present[name] = &runtimeapi.Image{Id: "id"}
			}
			if tc.change != nil {
				tc.change(f.registry)
			}
			if tc.image == "" {
				tc.image = name
			}
			image, failure := f.ensure(podOf("p", tc.image, tc.policy))
			if failure == nil {
				failure = &nodepod.ImageError{}
			}
			if failure.Reason != tc.reason || failure.Message != tc.message {
				t.Errorf("got  %s: %s\nwant %s: %s", failure.Reason, failure.Message, tc.reason, tc.message)
			}
			if (image.Ref != "") != (tc.reason == "") {
				t.Errorf("image %+v", image)
			}
			if f.registry.pulls != tc.pulls {
				t.Errorf("%d pulls, want %d", f.registry.pulls, tc.pulls)
			}
			if diff := cmp.Diff(tc.events, f.events()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPresentImageCostsOneCall(t *testing.T) {
	f := newFixture(t)
	f.registry.present[name] = &runtimeapi.Image{Id: "id"}
	if _, failure := f.ensure(podOf("p", name, v1.PullIfNotPresent)); failure != nil || f.registry.statuses != 1 {
		t.Errorf("%d calls, %v", f.registry.statuses, failure)
	}
}

func TestBackOff(t *testing.T) {
	f := newFixture(t)
	f.registry.broken = errors.New("boom")
	pod := podOf("p", name, v1.PullIfNotPresent)
	want := 10 * time.Second
	for attempt := 1; attempt <= 8; attempt++ {
		if _, failure := f.ensure(pod); failure == nil || failure.Reason != "ErrImagePull" || f.registry.pulls != attempt {
			t.Fatalf("attempt %d: %+v after %d pulls", attempt, failure, f.registry.pulls)
		}
		f.events()
		f.clock.Step(want - time.Millisecond)
		_, failure := f.ensure(pod)
		if failure == nil || failure.Reason != "ImagePullBackOff" || failure.Message != `Back-off pulling image "registry.test/app:1": ErrImagePull: boom` {
			t.Fatalf("attempt %d: %+v just before %v", attempt, failure, want)
		}
		wantEvents := []string{`Normal BackOff Back-off pulling image "registry.test/app:1"`, `Warning Failed Error: ImagePullBackOff`}
		if diff := cmp.Diff(wantEvents, f.events()); diff != "" {
			t.Fatal(diff)
		}
		f.clock.Step(time.Millisecond)
		want = min(2*want, 300*time.Second)
	}

	// The backoff does not affect other pods, and ends with a success.
	if _, failure := f.ensure(podOf("q", name, v1.PullIfNotPresent)); failure == nil || failure.Reason != "ErrImagePull" {
		t.Errorf("another pod: %+v", failure)
	}
	f.registry.broken = nil
	if _, failure := f.ensure(pod); failure != nil {
		t.Error(failure)
	}
	if _, waiting := f.backoff.waiting("p_" + name); waiting {
		t.Error("still backing off after success")
	}
}

func TestBackOffForgetsDeletedPods(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	b := newBackoff(clock)
	b.failed("old", "x")
	clock.Step(2*maxBackoff + time.Second)
	b.failed("new", "x")
	if len(b.failures) != 1 {
		t.Errorf("%d failures are not forgotten", len(b.failures))
	}
}

func TestConcurrentEqualPullsAreOne(t *testing.T) {
	f := newFixture(t)
	f.registry.block = make(chan struct{})
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if _, failure := f.ensure(podOf(fmt.Sprint(i), name, v1.PullIfNotPresent)); failure != nil {
				t.Error(failure)
			}
		}()
	}
	// All requests wait once each has recorded its Pulling event.
	for pulling := 0; pulling < 10; {
		if strings.Contains(<-f.recorder.Events, "Pulling") {
			pulling++
		}
	}
	close(f.registry.block)
	wg.Wait()
	if f.registry.pulls != 1 {
		t.Errorf("%d pulls", f.registry.pulls)
	}
}

func TestPullContinuesAfterItsPod(t *testing.T) {
	f := newFixture(t)
	f.registry.block = make(chan struct{})
	recorded := make(chan struct{})
	f.options.Pulled = func(uint64, time.Duration) { close(recorded) }
	ctx, cancel := context.WithCancel(context.Background())
	pod := podOf("p", name, v1.PullIfNotPresent)
	left := make(chan error)
	go func() {
		_, err := f.EnsurePresent(ctx, pod, &pod.Spec.Containers[0], nil)
		left <- err
	}()
	for f.registry.pullCount() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-left; err == nil {
		t.Error("no error for a deleted pod")
	}
	close(f.registry.block)
	if _, failure := f.ensure(podOf("q", name, v1.PullIfNotPresent)); failure != nil {
		t.Error(failure)
	}
	if f.registry.pulls != 1 {
		t.Errorf("%d pulls", f.registry.pulls)
	}
	for _, event := range f.events() {
		if strings.Contains(event, "Failed") {
			t.Errorf("a deleted pod got the event %q", event)
		}
	}
	<-recorded
}

func (r *registry) pullCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pulls
}

func TestImagePulledWithSecretNeedsSecret(t *testing.T) {
	f := newFixture(t)
	f.registry.password = "right"
	f.secrets["good"] = pullSecret("good", "1", "right")
	f.secrets["twin"] = pullSecret("twin", "2", "right")
	f.secrets["bad"] = pullSecret("bad", "3", "wrong")
	if _, failure := f.ensure(podOf("owner", name, v1.PullIfNotPresent, "bad", "good")); failure != nil {
		t.Fatal(failure)
	}
	pulls := f.registry.pulls

	// A new agent reads the records.
	f.Manager = New(context.Background(), f.options)
	for _, tc := range []struct {
		pod    *v1.Pod
		reason string
		pulls  int
	}{
		{podOf("same", name, v1.PullIfNotPresent, "good"), "", 0},
		{podOf("equal", name, v1.PullIfNotPresent, "twin"), "", 0},
		{podOf("never", name, v1.PullNever, "good"), "", 0},
		{podOf("without", name, v1.PullIfNotPresent), "ErrImagePull", 1},
		{podOf("stranger", name, v1.PullIfNotPresent, "bad"), "ErrImagePull", 1},
		{podOf("peeping", name, v1.PullNever), "ErrImageNeverPull", 0},
	} {
		_, failure := f.ensure(tc.pod)
		if failure == nil {
			failure = &nodepod.ImageError{}
		}
		if failure.Reason != tc.reason || f.registry.pulls-pulls != tc.pulls {
			t.Errorf("%s: %s after %d pulls, want %s after %d", tc.pod.Name, failure.Reason, f.registry.pulls-pulls, tc.reason, tc.pulls)
		}
		pulls = f.registry.pulls
	}

	// Once an anonymous pull succeeds, every pod may use the image.
	f.registry.password = ""
	if _, failure := f.ensure(podOf("open", name, v1.PullIfNotPresent)); failure != nil {
		t.Error(failure)
	}
	if _, failure := f.ensure(podOf("late", name, v1.PullNever)); failure != nil {
		t.Error(failure)
	}
}

func TestInterruptedPullGrantsNoAccess(t *testing.T) {
	f := newFixture(t)
	if _, err := f.records.begin(name, &credential{auth: &runtimeapi.AuthConfig{}}); err != nil {
		t.Fatal(err)
	}
	f.registry.present[name] = &runtimeapi.Image{Id: "id"} // the runtime finished the pull
	f.registry.broken = errors.New("denied")
	if _, failure := f.ensure(podOf("p", name, v1.PullIfNotPresent)); failure == nil || failure.Reason != "ErrImagePull" {
		t.Errorf("got %+v", failure)
	}
}

func TestMissingPullSecretIsReported(t *testing.T) {
	const want = "Warning FailedToRetrieveImagePullSecret Unable to retrieve some image pull secrets (none, nil); attempting to pull the image may not succeed."
	for policy, broken := range map[v1.PullPolicy]error{v1.PullAlways: errors.New("denied"), v1.PullIfNotPresent: nil} {
		f := newFixture(t)
		f.registry.broken = broken
		f.registry.present[name] = &runtimeapi.Image{Id: "id"}
		f.ensure(podOf("p", name, policy, "none", "", "nil"))
		if got := f.events(); !slices.Contains(got, want) {
			t.Errorf("%s: no event %q in %q", policy, want, got)
		}
	}
}

func TestUser(t *testing.T) {
	for _, tc := range []struct {
		image *runtimeapi.Image
		want  criconfig.Image
	}{
		{&runtimeapi.Image{Id: "i"}, criconfig.Image{Ref: "i"}},
		{&runtimeapi.Image{Id: "i", Uid: &runtimeapi.Int64Value{Value: 0}}, criconfig.Image{Ref: "i", UID: new(int64(0))}},
		{&runtimeapi.Image{Id: "i", Username: "app"}, criconfig.Image{Ref: "i", Username: "app"}},
		{&runtimeapi.Image{Id: "i", Username: "65532"}, criconfig.Image{Ref: "i", Username: "65532", UID: new(int64(65532))}},
	} {
		if diff := cmp.Diff(tc.want, found(tc.image)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestWithTag(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for in, want := range map[string]string{
		"busybox": "busybox:latest", "busybox:1": "busybox:1", "host:5000/a/b": "host:5000/a/b:latest",
		"a" + digest: "a" + digest, "a:1" + digest: "a:1" + digest, "": "", "a:": "", "A": "", "a b": "",
	} {
		if got, err := withTag(in); got != want || (err != nil) != (want == "") {
			t.Errorf("%q: got %q, %v; want %q", in, got, err, want)
		}
	}
}
