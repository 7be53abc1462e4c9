// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/runtime"
	"github.com/kindred-project/kindred/internal/node/source"
	"github.com/kindred-project/kindred/internal/node/static"
)

// failedValidation is the reason of events about manifests that cannot be used.
const failedValidation = "FailedValidation"

func (a *Agent) newStatic() *static.Pods {
	var sources []string
	if a.options.Config.StaticPodPath != "" {
		sources = append(sources, source.File)
	}
	if a.options.Config.StaticPodURL != "" {
		sources = append(sources, source.HTTP)
	}
	return static.New(static.Options{
		Sources: sources, Workers: a.pods, Mirrors: a.mirrors, Clock: a.options.Clock,
		Duplicate: func(p *v1.Pod) {
			a.options.Recorder.Eventf(pod.Reference(p), v1.EventTypeWarning, failedValidation,
				"Error validating pod %s from %s due to duplicate pod name %q, ignoring", podTitle(p), p.Annotations[source.Annotation], p.Name)
		},
	})
}

// podTitle formats a pod as in a kubelet's events.
func podTitle(p *v1.Pod) string { return fmt.Sprintf("%s_%s(%s)", p.Name, p.Namespace, p.UID) }

// runStatic runs the static pods until ctx ends. It does not wait for the API.
func (a *Agent) runStatic(ctx context.Context) {
	left, err := a.podsInRuntime(ctx)
	if err != nil {
		return // ctx ended
	}
	var ofStatic []*runtime.Pod
	for _, p := range left {
		if source.IsOfStatic(p.Source) {
			ofStatic = append(ofStatic, p)
		}
	}
	a.static.Adopt(ofStatic)
	var running sync.WaitGroup
	defer running.Wait()
	o, c := a.options, a.options.Config
	if c.StaticPodPath != "" {
		file := &static.File{
			Path: c.StaticPodPath, Node: o.Name, Decode: o.Decode, Period: c.FileCheckFrequency.Duration, Clock: o.Clock,
			Found:  func(pods []*v1.Pod) { a.static.Set(source.File, pods) },
			Failed: func(file string, err error) { a.manifestFailed(ctx, file, err) },
		}
		running.Go(func() { file.Run(ctx) })
	}
	if c.StaticPodURL != "" {
		url := &static.URL{
			URL: c.StaticPodURL, Header: http.Header(c.StaticPodURLHeader), Node: o.Name, Decode: o.Decode,
			Period: c.HTTPCheckFrequency.Duration, Clock: o.Clock,
			Found:  func(pods []*v1.Pod) { a.static.Set(source.HTTP, pods) },
			Failed: func(url string, err error) { a.manifestFailed(ctx, url, err) },
		}
		running.Go(func() { url.Run(ctx) })
	}
	select {
	case <-a.static.Read():
		a.mirrors.AllKnown()
	case <-ctx.Done():
	}
}

// manifestFailed logs the error of a manifest, and records it as an event on the Node, because there may be no pod.
func (a *Agent) manifestFailed(ctx context.Context, at string, err error) {
	klog.FromContext(ctx).Error(err, "Could not process manifest", "source", at)
	a.registration.record(v1.EventTypeWarning, failedValidation, fmt.Sprintf("Could not process manifest %s: %v", at, err))
}

// routedStatus writes the statuses of static pods to package static, and those of other pods to the API.
type routedStatus struct {
	static pod.Status
	api    pod.Status
}

func (s routedStatus) of(p *v1.Pod) pod.Status {
	if source.IsStatic(p) {
		return s.static
	}
	return s.api
}

// Write implements pod.Status.
func (s routedStatus) Write(ctx context.Context, p *v1.Pod, status v1.PodStatus) (*v1.Pod, error) {
	if source.IsStatic(p) {
		return s.static.Write(ctx, p, status)
	}
	written, err := s.api.Write(ctx, p, status)
	if written != nil {
		written = fromAPI(written)
	}
	return written, err
}

// Delete implements pod.Status.
func (s routedStatus) Delete(ctx context.Context, p *v1.Pod) error { return s.of(p).Delete(ctx, p) }

// fromAPI returns a pod of the API. A client may have given it the annotation of a static pod.
func fromAPI(p *v1.Pod) *v1.Pod {
	if !source.IsStatic(p) {
		return p
	}
	p = p.DeepCopy()
	p.Annotations[source.Annotation] = source.API
	return p
}
