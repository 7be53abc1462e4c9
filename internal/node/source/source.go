// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package source says where a pod is from: the API, a file or a URL.
package source

import v1 "k8s.io/api/core/v1"

// The annotations that a node gives static pods and their mirror pods. The names are the kubelet's, which tools know.
const (
	HashAnnotation   = "kubernetes.io/config.hash"   // identifies the manifest
	Annotation       = "kubernetes.io/config.source" // where the pod is from
	SeenAnnotation   = "kubernetes.io/config.seen"   // when the agent first saw it
	MirrorAnnotation = v1.MirrorPodAnnotationKey     // of a mirror pod: the hash of its static pod
)

// The sources of pods.
const (
	File = "file"
	HTTP = "http"
	API  = "api"
)

// IsStatic reports whether a pod is from a file or a URL, and not from the API.
func IsStatic(p *v1.Pod) bool {
	return IsOfStatic(p.Annotations[Annotation])
}

// IsMirror reports whether a pod of the API represents a static pod. Nothing runs it.
func IsMirror(p *v1.Pod) bool {
	_, mirror := p.Annotations[MirrorAnnotation]
	return mirror
}

// IsOfStatic reports whether the value of Annotation is that of a static pod.
func IsOfStatic(value string) bool { return value != "" && value != API }
