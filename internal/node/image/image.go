// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package image makes container images present on the node.
//
// A request has four steps: parse the name; check whether the image is present and the pod may use it
// (records.go); check whether its pull is backing off (backoff.go); pull it, with the pod's credentials
// (keyring.go). Concurrent equal pulls are one pull. A pull continues if its pod is deleted, so that
// the next pod finds the image.
package image

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/criconfig"
	nodepod "github.com/kindred-project/kindred/internal/node/pod"
)

// Service is the used part of CRI's image service.
type Service interface {
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error)
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error)
}

// Secrets reads the pull secrets of a pod. Package objects implements it.
type Secrets interface {
	Secret(ctx context.Context, pod *v1.Pod, name string) (*v1.Secret, error)
}

// Options are what pulls depend on.
type Options struct {
	Service  Service
	Secrets  Secrets
	Recorder record.EventRecorder
	Clock    clock.PassiveClock
	// RecordsDir stores which credentials pulled which image.
	RecordsDir string
	// Verification is for which present images a pod needs credentials.
	Verification Verification
	// Limits are those of the pulls.
	Limits Limits
	// RuntimeHandler returns the handler of a pod's runtime class. Nil: always the default.
	RuntimeHandler func(pod *v1.Pod) string
	// Used is called, if set, with the ID of each image that a pod is about to use.
	Used func(id string)
	// Pulled is called, if set, with the size of each pulled image and the time that the pull took.
	Pulled func(size uint64, took time.Duration)
	// Ensured is called, if set, after each request, with the container's policy, whether the image was present, and whether
	// it had to be pulled. Either is nil if that was not found out.
	Ensured func(policy v1.PullPolicy, present, pull *bool)
}

// Manager makes images present. It implements pod.Images.
type Manager struct {
	ctx     context.Context
	options Options
	backoff *backoff
	limiter limiter
	records *records
	pulls   singleflight.Group
}

// New returns a Manager whose pulls are cancelled when ctx ends.
func New(ctx context.Context, options Options) *Manager {
	return &Manager{
		ctx:     ctx,
		options: options,
		backoff: newBackoff(options.Clock),
		limiter: newLimiter(options.Limits, options.Clock),
		records: &records{dir: options.RecordsDir, clock: options.Clock, verification: options.Verification},
	}
}

// PruneRecords removes the records of pulled images that list does not return. It calls list once. The caller has
// removed these images from the runtime.
func (m *Manager) PruneRecords(list func() ([]string, error)) error { return m.records.prune(list) }

// The reasons of a container that waits for its image, as in upstream's kubelet.
const (
	errInvalidName = "InvalidImageName"
	errInspect     = "ImageInspectError"
	errNeverPull   = "ErrImageNeverPull"
	errPull        = "ErrImagePull"
	errBackOff     = "ImagePullBackOff"
)

// The reasons of events.
const (
	eventPulling   = "Pulling"
	eventPulled    = "Pulled"
	eventFailed    = "Failed"
	eventBackOff   = "BackOff"
	eventNeverPull = "ErrImageNeverPull"
	eventInspect   = "InspectFailed"
	eventNoSecret  = "FailedToRetrieveImagePullSecret"
)

// request is one container's request for its image.
type request struct {
	*Manager
	pod       *v1.Pod
	container *v1.Container
	sandbox   *runtimeapi.PodSandboxConfig
	spec      *runtimeapi.ImageSpec
	keys      *keyring // read on first use

	isPresent, mustPull *bool // nil while unknown
}

// EnsurePresent implements pod.Images.
func (m *Manager) EnsurePresent(ctx context.Context, pod *v1.Pod, container *v1.Container, sandbox *runtimeapi.PodSandboxConfig) (criconfig.Image, error) {
	r := &request{Manager: m, pod: pod, container: container, sandbox: sandbox}
	if len(pod.Spec.ImagePullSecrets) > 0 {
		r.reportMissingSecrets(ctx) // also if the image is present, as in the kubelet
	}
	image, failure := r.ensure(ctx)
	if m.options.Ensured != nil {
		m.options.Ensured(container.ImagePullPolicy, r.isPresent, r.mustPull)
	}
	if failure == nil {
		if m.options.Used != nil {
			m.options.Used(image.Ref)
		}
		return image, nil
	}
	if ctx.Err() == nil {
		r.event(v1.EventTypeWarning, eventFailed, "Error: "+failure.Reason)
	}
	return criconfig.Image{}, failure
}

func (r *request) ensure(ctx context.Context) (criconfig.Image, *nodepod.ImageError) {
	wanted := r.container.Image
	name, err := withTag(wanted)
	if err != nil {
		message := fmt.Sprintf("Failed to apply default image tag %q: %v", wanted, err)
		return criconfig.Image{}, r.fail(eventInspect, errInvalidName, message)
	}
	r.spec = &runtimeapi.ImageSpec{Image: name, UserSpecifiedImage: wanted, Annotations: r.pod.Annotations}
	if r.options.RuntimeHandler != nil {
		r.spec.RuntimeHandler = r.options.RuntimeHandler(r.pod)
	}
	if r.container.ImagePullPolicy != v1.PullAlways {
		image, failure := r.local(ctx)
		if image != nil || failure != nil {
			return found(image), failure
		}
	}
	return r.pull(ctx)
}

// local returns the image if it is present and the pod may use it.
func (r *request) local(ctx context.Context) (*runtimeapi.Image, *nodepod.ImageError) {
	status, err := r.options.Service.ImageStatus(ctx, r.spec, false)
	if err != nil {
		return nil, r.fail(eventInspect, errInspect, fmt.Sprintf("Failed to inspect image \"\": %v", err))
	}
	image := status.GetImage()
	r.isPresent = new(image != nil)
	if image != nil {
		r.mustPull = new(!r.mayUse(ctx, image.Id))
	}
	if image != nil && !*r.mustPull {
		r.event(v1.EventTypeNormal, eventPulled,
			fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", r.container.Image))
		return image, nil
	}
	if r.container.ImagePullPolicy == v1.PullNever {
		// The message is the same for an image that the pod may not use.
		return nil, r.fail(eventNeverPull, errNeverPull,
			fmt.Sprintf("Container image %q is not present with pull policy of Never", r.container.Image))
	}
	return nil, nil
}

// mayUse reports whether the pod may use a present image. It reads the pod's secrets only if that depends on them.
func (r *request) mayUse(ctx context.Context, ref string) bool {
	allowed, needsKeys := r.records.allows(r.spec.Image, ref, nil)
	if allowed || !needsKeys {
		return allowed
	}
	allowed, _ = r.records.allows(r.spec.Image, ref, r.keyring(ctx).lookup(r.spec.Image))
	return allowed
}

// pull pulls the image unless the pull is backing off.
func (r *request) pull(ctx context.Context) (criconfig.Image, *nodepod.ImageError) {
	r.mustPull = new(true)
	image := r.container.Image
	key := string(r.pod.UID) + "_" + image
	if earlier, waiting := r.backoff.waiting(key); waiting {
		message := fmt.Sprintf("Back-off pulling image %q", image)
		r.event(v1.EventTypeNormal, eventBackOff, message)
		return criconfig.Image{}, &nodepod.ImageError{Reason: errBackOff, Message: message + ": " + earlier}
	}
	r.event(v1.EventTypeNormal, eventPulling, fmt.Sprintf("Pulling image %q", image))
	begin := r.options.Clock.Now()
	pulled, err := r.shared(ctx)
	if err != nil && ctx.Err() != nil {
		// The pod is to stop. This is not a failure of the pull.
		return criconfig.Image{}, &nodepod.ImageError{Reason: errPull, Message: err.Error()}
	}
	if err != nil {
		r.event(v1.EventTypeWarning, eventFailed, fmt.Sprintf("Failed to pull image %q: %v", image, err))
		failure := imageError(image, err)
		r.backoff.failed(key, failure.Reason+": "+failure.Message)
		return criconfig.Image{}, failure
	}
	r.backoff.succeeded(key)
	waited := r.options.Clock.Since(begin).Truncate(time.Millisecond)
	r.event(v1.EventTypeNormal, eventPulled, fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %v bytes.",
		image, pulled.took.Truncate(time.Millisecond), waited, pulled.image.GetSize()))
	return found(pulled.image), nil
}

// pulled is the result of a pull.
type pulled struct {
	image *runtimeapi.Image
	took  time.Duration
}

// shared pulls, or waits for an equal pull in progress.
func (r *request) shared(ctx context.Context) (pulled, error) {
	credentials := r.keyring(ctx).lookup(r.spec.Image)
	key := strings.Join(append([]string{r.spec.Image, r.spec.RuntimeHandler}, hashes(credentials)...), " ")
	// The pull uses the node's context: it continues if this pod is deleted.
	done := r.pulls.DoChan(key, func() (any, error) {
		ctx := klog.NewContext(r.ctx, klog.FromContext(ctx))
		end, err := r.limiter.wait(ctx)
		if err != nil {
			return pulled{}, err
		}
		defer end()
		begin := r.options.Clock.Now()
		if image := r.pulledMeanwhile(ctx); image != nil {
			return pulled{image: image}, nil
		}
		if err := r.limiter.check(); err != nil {
			return pulled{}, err
		}
		image, err := r.pullWith(ctx, credentials)
		took := r.options.Clock.Since(begin)
		if err == nil && r.options.Pulled != nil {
			r.options.Pulled(image.GetSize(), took)
		}
		return pulled{image: image, took: took}, err
	})
	select {
	case result := <-done:
		return result.Val.(pulled), result.Err
	case <-ctx.Done():
		return pulled{}, ctx.Err()
	}
}

// pulledMeanwhile returns the image if another pull has finished since this request checked for it.
func (r *request) pulledMeanwhile(ctx context.Context) *runtimeapi.Image {
	if r.container.ImagePullPolicy == v1.PullAlways {
		return nil
	}
	status, err := r.options.Service.ImageStatus(ctx, r.spec, false)
	if err != nil || status.GetImage() == nil || !r.mayUse(ctx, status.GetImage().Id) {
		return nil
	}
	return status.GetImage()
}

// pullWith tries the credentials in order. Without any it pulls anonymously.
func (r *request) pullWith(ctx context.Context, credentials []credential) (*runtimeapi.Image, error) {
	if len(credentials) == 0 {
		credentials = []credential{{}}
	}
	var errs []error
	for i := range credentials {
		image, err := r.pullOnce(ctx, &credentials[i])
		if err == nil {
			return image, nil
		}
		errs = append(errs, err)
	}
	return nil, utilerrors.NewAggregate(errs)
}

func (r *request) pullOnce(ctx context.Context, credential *credential) (*runtimeapi.Image, error) {
	done, err := r.records.begin(r.spec.Image, credential)
	if err != nil {
		return nil, fmt.Errorf("failed to record image pull intent for container image %q: %w", r.container.Image, err)
	}
	ref, err := r.options.Service.PullImage(ctx, r.spec, credential.auth, r.sandbox)
	if err != nil {
		done("")
		return nil, err
	}
	done(ref)
	// The response of the pull has neither size nor user.
	status, err := r.options.Service.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: ref, RuntimeHandler: r.spec.RuntimeHandler}, false)
	if err != nil {
		return nil, err
	}
	if status.GetImage() == nil {
		return nil, fmt.Errorf("image %s was removed right after its pull", ref)
	}
	return status.Image, nil
}

func (r *request) keyring(ctx context.Context) *keyring {
	if r.keys == nil {
		r.keys = newKeyring(ctx, r.options.Secrets, r.pod)
	}
	return r.keys
}

func (r *request) reportMissingSecrets(ctx context.Context) {
	missing := r.keyring(ctx).missing
	if len(missing) == 0 {
		return
	}
	r.options.Recorder.Event(nodepod.Reference(r.pod), v1.EventTypeWarning, eventNoSecret,
		fmt.Sprintf("Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", ")))
}

// fail records the event of a failure and returns the failure.
func (r *request) fail(event, reason, message string) *nodepod.ImageError {
	r.event(v1.EventTypeWarning, event, message)
	return &nodepod.ImageError{Reason: reason, Message: message}
}

func (r *request) event(kind, reason, message string) {
	r.options.Recorder.Event(nodepod.ContainerReference(r.pod, r.container.Name), kind, reason, message)
}

// imageError converts the error of a pull. Errors come over gRPC as text, so that CRI's named errors are
// recognized by their prefix.
func imageError(image string, err error) *nodepod.ImageError {
	text := err.Error()
	for _, known := range []struct {
		err  error
		what string
	}{
		{crierrors.ErrRegistryUnavailable, "the registry is unavailable"},
		{crierrors.ErrSignatureValidationFailed, "the signature validation failed"},
	} {
		if detail, ok := strings.CutPrefix(text, known.err.Error()); ok {
			return &nodepod.ImageError{
				Reason:  known.err.Error(),
				Message: fmt.Sprintf("image pull failed for %s because %s%s", image, known.what, detail),
			}
		}
	}
	return &nodepod.ImageError{Reason: errPull, Message: text}
}

func found(image *runtimeapi.Image) criconfig.Image {
	out := criconfig.Image{Ref: image.GetId(), Username: image.GetUsername()}
	switch uid := image.GetUid(); {
	case uid != nil:
		out.UID = &uid.Value
	default:
		// Runtimes may return a numeric user as a name.
		if number, err := strconv.ParseInt(out.Username, 10, 64); err == nil {
			out.UID = &number
		}
	}
	return out
}
