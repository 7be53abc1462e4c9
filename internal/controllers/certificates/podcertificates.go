// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"errors"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
)

// PodRequestCleanerName is the identity of the controller that deletes old
// PodCertificateRequests.
const PodRequestCleanerName = "podcertificaterequestcleaner"

const (
	podRequestTTL      = 15 * time.Minute
	podRequestInterval = 5 * time.Minute
)

// AddPodRequestCleaner registers the controller that deletes PodCertificateRequests older
// than podRequestTTL (KEP-4317). Requests are answered within minutes, so the controller
// lists them regularly and keeps none of them in memory.
func AddPodRequestCleaner(env control.Env) error {
	c := &podRequestCleaner{client: env.Client, live: env.Live, clock: env.Clock}
	return env.Every(podRequestInterval, c.clean)
}

type podRequestCleaner struct {
	client client.Client
	live   client.Reader
	clock  clock.PassiveClock
}

// clean deletes the expired requests.
func (c *podRequestCleaner) clean(ctx context.Context) error {
	requests := &metav1.PartialObjectMetadataList{}
	requests.SetGroupVersionKind(certificatesv1.SchemeGroupVersion.WithKind("PodCertificateRequestList"))
	if err := c.live.List(ctx, requests); err != nil {
		return err
	}
	var errs []error
	for i := range requests.Items {
		r := &requests.Items[i]
		if c.clock.Since(r.CreationTimestamp.Time) >= podRequestTTL {
			errs = append(errs, client.IgnoreNotFound(c.client.Delete(ctx, r, client.Preconditions{UID: &r.UID})))
		}
	}
	return errors.Join(errs...)
}
