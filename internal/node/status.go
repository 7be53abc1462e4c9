// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
)

// podStatus writes the statuses of pods to the API. It implements pod.Status.
type podStatus struct {
	client kubernetes.Interface
}

// Write patches what differs. The UID in the patch is a precondition, so that a later pod with the same
// name is not changed.
func (s podStatus) Write(ctx context.Context, pod *v1.Pod, status v1.PodStatus) (*v1.Pod, error) {
	patch, err := statusPatch(pod, status)
	if err != nil {
		return nil, err
	}
	if patch == nil {
		return pod, nil
	}
	updated, err := s.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && s.isGone(ctx, pod, err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("patch status: %w", err)
	}
	return updated, nil
}

// isGone reports whether err means that the pod was deleted, possibly with another pod of its name now.
func (s podStatus) isGone(ctx context.Context, pod *v1.Pod, err error) bool {
	if apierrors.IsConflict(err) {
		var current *v1.Pod
		if current, err = s.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{}); err == nil {
			return current.UID != pod.UID
		}
	}
	return apierrors.IsNotFound(err)
}

// statusPatch returns the strategic merge patch to the new status, or nil if it is unchanged.
func statusPatch(pod *v1.Pod, status v1.PodStatus) ([]byte, error) {
	change, err := changeOf(&v1.Pod{Status: pod.Status}, &v1.Pod{Status: status})
	if err != nil || len(change) == 0 {
		return nil, err
	}
	change["metadata"] = map[string]any{"uid": pod.UID}
	return json.Marshal(change)
}

// changeOf returns the strategic merge patch between two objects of one type.
func changeOf(before, after any) (map[string]any, error) {
	from, err := runtime.DefaultUnstructuredConverter.ToUnstructured(before)
	if err != nil {
		return nil, fmt.Errorf("encode old status: %w", err)
	}
	to, err := runtime.DefaultUnstructuredConverter.ToUnstructured(after)
	if err != nil {
		return nil, fmt.Errorf("encode new status: %w", err)
	}
	change, err := strategicpatch.CreateTwoWayMergeMapPatch(from, to, before)
	if err != nil {
		return nil, fmt.Errorf("compare statuses: %w", err)
	}
	return change, nil
}

// Delete implements pod.Status.
func (s podStatus) Delete(ctx context.Context, pod *v1.Pod) error {
	err := s.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64),
		Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil && s.isGone(ctx, pod, err) {
		return nil
	}
	return err
}
