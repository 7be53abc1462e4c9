// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificates handles CertificateSigningRequests for Kubernetes' own signers. A
// Reconcile takes a request to its next state: requests of node agents for their own identity
// are approved automatically (approve.go), approved requests are signed by the cluster's CA if
// the signer permits them (sign.go), and old requests are deleted (clean.go). A second
// controller deletes old PodCertificateRequests (podcertificates.go).
package certificates

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
)

// Name is the controller's identity.
const Name = "certificate-controller"

const workers = 5

type request = certificatesv1.CertificateSigningRequest

// Add returns the function that registers the controller with the given signer.
func Add(sign Signer) func(control.Env) error {
	return func(env control.Env) error {
		r := &reconciler{client: env.Client, clock: env.Clock, sign: sign}
		return ctrl.NewControllerManagedBy(env.Manager).
			Named(Name).
			WithOptions(env.Options(workers)).
			For(&certificatesv1.CertificateSigningRequest{}).
			Complete(r)
	}
}

type reconciler struct {
	client client.Client
	clock  clock.PassiveClock
	sign   Signer
}

// Reconcile takes one request to its next state. Its writes wake it again.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	found := &request{}
	if err := r.client.Get(ctx, req.NamespacedName, found); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	now := r.clock.Now()
	until, ends := deadline(found)
	if ends && now.After(until) {
		return ctrl.Result{}, r.remove(ctx, found)
	}
	var again time.Duration
	var err error
	switch found = found.DeepCopy(); {
	case len(found.Status.Certificate) > 0:
	case !has(found, certificatesv1.CertificateApproved) && !has(found, certificatesv1.CertificateDenied):
		again, err = r.decide(ctx, found, now)
	case has(found, certificatesv1.CertificateApproved) && !has(found, certificatesv1.CertificateDenied) && !failed(found):
		err = r.issue(ctx, found, now)
	}
	if errors.Is(err, errUnreadable) {
		// The request cannot be answered, but is still deleted after its TTL.
		klog.FromContext(ctx).Error(err, "Cannot handle a CertificateSigningRequest", "request", found.Name)
		err = nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if ends {
		again = control.SoonerOf(again, until.Sub(now)+time.Second)
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// has reports whether a request has a condition, whatever its status: approval and denial are
// always true.
func has(r *request, t certificatesv1.RequestConditionType) bool {
	for i := range r.Status.Conditions {
		if r.Status.Conditions[i].Type == t {
			return true
		}
	}
	return false
}

// failed reports whether the request has the condition Failed. An old condition has no status.
func failed(r *request) bool {
	for _, c := range r.Status.Conditions {
		if c.Type == certificatesv1.CertificateFailed && (c.Status == "" || c.Status == corev1.ConditionTrue) {
			return true
		}
	}
	return false
}

// errUnreadable is returned for a request that cannot be parsed. It is not retried.
var errUnreadable = errors.New("no certificate request")

// parse parses the PKCS #10 request. The API validates it, but other programs may write to
// the store.
func parse(r *request) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, fmt.Errorf("%w: PEM block type must be CERTIFICATE REQUEST", errUnreadable)
	}
	wanted, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = wanted.CheckSignature()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return wanted, nil
}
