// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

const (
	// issueWait is the time that one attempt waits for a pod's first certificate. refreshCheck is how
	// often a pending renewal is checked.
	issueWait    = 30 * time.Second
	refreshCheck = 10 * time.Second
	// refreshJitter keeps certificates that were issued together from being renewed together.
	refreshJitter = 5 * time.Minute
)

var errNotIssued = errors.New("credential bundle is not issued yet")

// certificateKey identifies a certificate of a pod.
type certificateKey struct {
	volume string
	source int
}

// podCertificate is a key with its certificate chain, and the pending request for the next one (KEP-4317).
// Keys are in memory only: a new agent requests new certificates.
type podCertificate struct {
	key     []byte    // PEM, PKCS #8
	chain   []byte    // PEM; nil until the first is issued
	refresh time.Time // zero for never
	expires time.Time // zero if unknown

	request    string // name of the pending request, or ""
	requestKey []byte // the key it is for
	refused    error  // the signer denied or failed the request
	refusal    string // the same in metrics: certDenied or certFailed
}

// certificateFiles returns the files of a pod certificate, and when to call it again to renew it.
func (m *Manager) certificateFiles(ctx context.Context, pod *v1.Pod, key certificateKey, source *v1.PodCertificateProjection, mode *int32) (payload, time.Time, error) {
	state := m.state(pod.UID)
	c := state.certificates[key]
	if c == nil {
		c = &podCertificate{}
		state.certificates[key] = c
		state.show(key, c.shown(source.SignerName)) // the first certificate may take long
	}
	err := m.advance(ctx, pod, source, c)
	state.show(key, c.shown(source.SignerName))
	if err != nil {
		return nil, time.Time{}, err
	}
	again := c.refresh
	if c.request != "" {
		again = m.options.Clock.Now().Add(refreshCheck)
	}
	files := payload{}
	add := func(path string, data []byte) {
		for path, f := range credential(pod, path, data, mode) {
			if path != "" {
				files[path] = f
			}
		}
	}
	add(source.CredentialBundlePath, append(bytes.Clone(c.key), c.chain...))
	add(source.KeyPath, c.key)
	add(source.CertificateChainPath, c.chain)
	return files, again, nil
}

// advance requests a certificate if one is due, and takes one that was issued. It fails if the pod has no
// certificate yet, or if the signer has refused the last request.
func (m *Manager) advance(ctx context.Context, pod *v1.Pod, source *v1.PodCertificateProjection, c *podCertificate) error {
	if c.refused != nil {
		return c.refused
	}
	if c.request == "" && c.chain != nil && (c.refresh.IsZero() || m.options.Clock.Now().Before(c.refresh)) {
		return nil
	}
	answered, err := m.answer(ctx, pod, source, c)
	if apierrors.IsNotFound(err) {
		c.request = "" // it was deleted: create a new one
	}
	if err != nil {
		return c.unlessUsable(err)
	}
	return c.take(answered)
}

// unlessUsable ignores the error of a renewal: the old certificate stays, and the renewal is retried.
func (c *podCertificate) unlessUsable(err error) error {
	if c.chain != nil {
		return nil
	}
	return err
}

// take stores the result of a request, if it has one.
func (c *podCertificate) take(request *certificatesv1.PodCertificateRequest) error {
	for _, condition := range request.Status.Conditions {
		switch condition.Type {
		case certificatesv1.PodCertificateRequestConditionTypeDenied:
			c.refusal = certDenied
			c.refused = fmt.Errorf("PodCertificateRequest was permanently denied: reason=%q message=%q", condition.Reason, condition.Message)
			return c.refused
		case certificatesv1.PodCertificateRequestConditionTypeFailed:
			c.refusal = certFailed
			c.refused = fmt.Errorf("PodCertificateRequest was permanently failed: reason=%q message=%q", condition.Reason, condition.Message)
			return c.refused
		case certificatesv1.PodCertificateRequestConditionTypeIssued:
			c.key, c.chain = c.requestKey, blocksOnly(request.Status.CertificateChain)
			c.refresh, c.expires = time.Time{}, time.Time{}
			if at := request.Status.NotAfter; at != nil {
				c.expires = at.Time
			}
			if at := request.Status.BeginRefreshAt; at != nil {
				c.refresh = at.Add(rand.N(refreshJitter))
			}
			c.request, c.requestKey = "", nil
			return nil
		}
	}
	return c.unlessUsable(errNotIssued)
}

// answer returns the pending request, which it creates if there is none. If it is for the pod's first
// certificate, without which the pod cannot start, answer waits until the signer has answered. It does not
// wait for a renewal.
func (m *Manager) answer(ctx context.Context, pod *v1.Pod, source *v1.PodCertificateProjection, c *podCertificate) (*certificatesv1.PodCertificateRequest, error) {
	request, err := m.pendingRequest(ctx, pod, source, c)
	if err != nil || c.chain != nil || len(request.Status.Conditions) > 0 {
		return request, err
	}
	return m.awaitAnswer(ctx, request)
}

// pendingRequest returns the pending request, or a new one. It does not read a request that it has just
// created: the node authorizer denies that until it has seen the request too.
func (m *Manager) pendingRequest(ctx context.Context, pod *v1.Pod, source *v1.PodCertificateProjection, c *podCertificate) (*certificatesv1.PodCertificateRequest, error) {
	if c.request == "" {
		return m.requestCertificate(ctx, pod, source, c)
	}
	return m.options.Client.CertificatesV1().PodCertificateRequests(pod.Namespace).Get(ctx, c.request, metav1.GetOptions{})
}

// awaitAnswer waits until the signer has answered the request.
func (m *Manager) awaitAnswer(ctx context.Context, request *certificatesv1.PodCertificateRequest) (*certificatesv1.PodCertificateRequest, error) {
	ctx, cancel := context.WithTimeout(ctx, issueWait)
	defer cancel()
	// The node authorizer lets a node watch only what a selector limits to that node.
	selector := fields.Set{metav1.ObjectNameField: request.Name, "spec.nodeName": string(request.Spec.NodeName)}.String()
	client := m.options.Client.CertificatesV1().PodCertificateRequests(request.Namespace)
	changes := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		options.FieldSelector = selector
		return client.Watch(ctx, options)
	}}
	last, err := watchtools.Until(ctx, request.ResourceVersion, changes, func(event watch.Event) (bool, error) {
		now, ok := event.Object.(*certificatesv1.PodCertificateRequest)
		return ok && (event.Type == watch.Deleted || len(now.Status.Conditions) > 0), nil
	})
	if wait.Interrupted(err) || errors.Is(err, watchtools.ErrWatchClosed) {
		return nil, errNotIssued
	}
	if err != nil {
		return nil, err
	}
	if last.Type == watch.Deleted {
		return nil, apierrors.NewNotFound(certificatesv1.Resource("podcertificaterequests"), request.Name)
	}
	return last.Object.(*certificatesv1.PodCertificateRequest), nil
}

// requestCertificate generates a key and requests a certificate for it.
func (m *Manager) requestCertificate(ctx context.Context, pod *v1.Pod, source *v1.PodCertificateProjection, c *podCertificate) (*certificatesv1.PodCertificateRequest, error) {
	core := m.options.Client.CoreV1()
	account, err := core.ServiceAccounts(pod.Namespace).Get(ctx, pod.Spec.ServiceAccountName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("while fetching service account: %w", err)
	}
	node, err := core.Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("while fetching node: %w", err)
	}
	key, proof, err := newKey(source.KeyType)
	if err != nil {
		return nil, fmt.Errorf("while generating keypair: %w", err)
	}
	request := &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, GenerateName: "req-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: source.SignerName,
			PodName:    pod.Name, PodUID: pod.UID,
			ServiceAccountName: account.Name, ServiceAccountUID: account.UID,
			NodeName: types.NodeName(node.Name), NodeUID: node.UID,
			MaxExpirationSeconds: source.MaxExpirationSeconds, StubPKCS10Request: proof,
			UnverifiedUserAnnotations: source.UserAnnotations,
		},
	}
	created, err := m.options.Client.CertificatesV1().PodCertificateRequests(pod.Namespace).Create(ctx, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("while creating PodCertificateRequest: %w", err)
	}
	c.request, c.requestKey = created.Name, key
	return created, nil
}

// blocksOnly drops the headers of PEM blocks and the text between them.
func blocksOnly(chain string) []byte {
	var out bytes.Buffer
	for block, rest := pem.Decode([]byte(chain)); block != nil; block, rest = pem.Decode(rest) {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
	}
	return out.Bytes()
}
