// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const (
	replicas = 300
	// limit is the timeout of everything that is measured.
	limit = 3 * time.Minute
)

func deployment(replicas int32) *appsv1.Deployment {
	template := pod("")
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "bench"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: template.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: template.ObjectMeta, Spec: template.Spec},
		},
	}
}

// startWithClient starts a cluster and creates a client for it.
func (b *bench) startWithClient(ctx context.Context, args ...string) (*cluster, *kubernetes.Clientset, error) {
	c, err := b.start(ctx, args...)
	if err != nil {
		return nil, nil, err
	}
	client, err := c.client()
	if err != nil {
		c.stop()
		return nil, nil, err
	}
	return c, client, nil
}

var errWatchEnded = errors.New("the watch ended early")

// await reads a watch until the event that ends the measurement, and stops it.
func await(ctx context.Context, events watch.Interface, last func(watch.Event) bool) error {
	defer events.Stop()
	return until(ctx, events, last)
}

// until reads a watch until the event that ends the measurement.
func until(ctx context.Context, events watch.Interface, last func(watch.Event) bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		select {
		case e, ok := <-events.ResultChan():
			if !ok {
				return errWatchEnded
			}
			if e.Type == watch.Error {
				return apierrors.FromObject(e.Object)
			}
			if last(e) {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("waited %v: %w", limit, ctx.Err())
		}
	}
}
