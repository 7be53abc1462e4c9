// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// Deployments of the tests: the first is not changed, the second is scaled under load.
const (
	steady = "steady"
	scaled = "scaled"
)

// deploy creates the Deployments and returns once all their pods run.
func deploy(ctx context.Context, client kubernetes.Interface) error {
	for _, name := range []string{steady, scaled} {
		labels := map[string]string{"app": name}
		_, err := client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](3),
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{
						TerminationGracePeriodSeconds: ptr.To[int64](1),
						Containers:                    []corev1.Container{{Name: "c", Image: "example.com/app"}},
					},
				},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	return errors.Join(settled(ctx, client, steady, 3), settled(ctx, client, scaled, 3))
}

// scale changes the number of replicas. It returns the number that was acknowledged last.
func scale(ctx context.Context, client kubernetes.Interface, before, replicas int32) int32 {
	_, err := client.AppsV1().Deployments(namespace).UpdateScale(ctx, scaled, &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: scaled, Namespace: namespace},
		Spec:       autoscalingv1.ScaleSpec{Replicas: replicas},
	}, metav1.UpdateOptions{})
	if err != nil {
		return before
	}
	return replicas
}

// settled waits until a Deployment has exactly the desired number of pods, all running.
func settled(ctx context.Context, client kubernetes.Interface, name string, replicas int32) error {
	var last error
	for deadline := time.Now().Add(*within); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		pods, err := running(ctx, client, name)
		if err == nil && len(pods) == int(replicas) {
			return nil
		}
		last = fmt.Errorf("%s has %d pods that run, %d wanted: %w", name, len(pods), replicas, err)
	}
	return last
}

// running returns the UIDs of a Deployment's pods. It fails if one is not running or is terminating.
func running(ctx context.Context, client kubernetes.Interface, name string) ([]string, error) {
	list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		return nil, err
	}
	var uids []string
	for _, pod := range list.Items {
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			return uids, fmt.Errorf("pod %s is %s", pod.Name, pod.Status.Phase)
		}
		uids = append(uids, string(pod.UID))
	}
	slices.Sort(uids)
	return uids, nil
}
