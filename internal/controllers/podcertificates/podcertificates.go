// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podcertificates deletes PodCertificateRequests that nobody can be waiting
// for any more (KEP-4317). They are short-lived, and whoever made one has its answer
// within minutes; so they are not watched, but looked at now and then.
package podcertificates

import (
	"context"
	"errors"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/control"
)

// Name is the controller's identity.
const Name = "podcertificaterequestcleaner"

const (
	life     = 15 * time.Minute
	interval = 5 * time.Minute
)

// Add registers the controller.
func Add(env control.Env) error {
	c := &cleaner{client: env.Client, live: env.Live, clock: env.Clock}
	return env.Every(interval, c.clean)
}

type cleaner struct {
	client client.Client
	live   client.Reader
	clock  clock.PassiveClock
}

// clean deletes the requests whose time is over.
func (c *cleaner) clean(ctx context.Context) error {
	requests := &metav1.PartialObjectMetadataList{}
	requests.SetGroupVersionKind(certificatesv1.SchemeGroupVersion.WithKind("PodCertificateRequestList"))
	if err := c.live.List(ctx, requests); err != nil {
		return err
	}
	var errs []error
	for i := range requests.Items {
		r := &requests.Items[i]
		if c.clock.Since(r.CreationTimestamp.Time) >= life {
			errs = append(errs, client.IgnoreNotFound(c.client.Delete(ctx, r, client.Preconditions{UID: &r.UID})))
		}
	}
	return errors.Join(errs...)
}
