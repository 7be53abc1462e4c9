// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

// evictionPause is the time between two attempts to evict pods.
const evictionPause = time.Second

// Drain cordons a node and evicts its pods, as "kubectl drain" does, until none is left but those of DaemonSets and static pods. It
// calls waiting when that for which it waits changes. Without force it refuses a node with pods that nothing would create elsewhere.
func Drain(ctx context.Context, client kubernetes.Interface, node string, force bool, clock clock.Clock, waiting func(string)) error {
	pods, err := evictable(ctx, client, node)
	if err != nil {
		return err
	}
	if lost := alone(pods); len(lost) > 0 && !force {
		return fmt.Errorf("nothing creates these pods elsewhere: %s; delete them, or lose them with --force", strings.Join(lost, ", "))
	}
	cordon := []byte(`{"spec":{"unschedulable":true}}`)
	if _, err := client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, cordon, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("cordon the node: %w", err)
	}
	said := ""
	for len(pods) > 0 {
		why, err := evict(ctx, client, pods)
		if err != nil {
			return err
		}
		if why != said {
			waiting(why)
			said = why
		}
		select {
		case <-clock.After(evictionPause):
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", ctx.Err(), why)
		}
		if pods, err = evictable(ctx, client, node); err != nil {
			return err
		}
	}
	return nil
}

// evictable returns the pods of a node that a drain waits for.
func evictable(ctx context.Context, client kubernetes.Interface, node string) ([]corev1.Pod, error) {
	found, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return nil, fmt.Errorf("list the pods of the node: %w", err)
	}
	return slices.DeleteFunc(found.Items, func(p corev1.Pod) bool {
		owner := metav1.GetControllerOf(&p)
		_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
		return mirror || owner != nil && owner.Kind == "DaemonSet"
	}), nil
}

// alone returns the names of the pods that no controller has, and that have not ended.
func alone(pods []corev1.Pod) (names []string) {
	for i := range pods {
		p := &pods[i]
		if metav1.GetControllerOf(p) == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			names = append(names, p.Namespace+"/"+p.Name)
		}
	}
	return names
}

// evict requests the eviction of pods, and returns what the drain waits for.
func evict(ctx context.Context, client kubernetes.Interface, pods []corev1.Pod) (why string, err error) {
	var refused []string
	for i := range pods {
		p := &pods[i]
		if p.DeletionTimestamp != nil {
			continue
		}
		eviction := &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))},
		}
		switch err := client.PolicyV1().Evictions(p.Namespace).Evict(ctx, eviction); {
		case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		case apierrors.IsTooManyRequests(err):
			refused = append(refused, fmt.Sprintf("%s/%s (%v)", p.Namespace, p.Name, err))
		default:
			return "", fmt.Errorf("evict %s/%s: %w", p.Namespace, p.Name, err)
		}
	}
	if len(refused) > 0 {
		return "waiting until these pods may be evicted: " + strings.Join(refused, ", "), nil
	}
	return fmt.Sprintf("waiting until %d pods have ended", len(pods)), nil
}

// Remove deletes the Node of a machine that has left. The machine must not run as the node any more.
func Remove(ctx context.Context, client kubernetes.Interface, node string) error {
	err := client.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete node %s: %w", node, err)
	}
	return nil
}

// ErrNotJoined is returned if a data directory is not that of a machine that has joined a cluster.
var ErrNotJoined = errors.New("this machine has joined no cluster")
