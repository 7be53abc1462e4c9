// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package noderestriction

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/component-helpers/storage/ephemeral"
)

// admitToken lets a node request tokens that are bound to one of its pods, for
// audiences that the pod uses (KEP-4935).
func (p *Plugin) admitToken(ctx context.Context, r request) error {
	if r.GetOperation() != admission.Create || r.GetSubresource() != "token" {
		return nil
	}
	token, ok := r.GetObject().(*authenticationv1.TokenRequest)
	if !ok {
		return r.unexpected(r.GetObject())
	}
	ref := token.Spec.BoundObjectRef
	if ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "" {
		return r.refuse("node requested token not bound to a pod")
	}
	if ref.UID == "" {
		return r.refuse("node requested token with a pod binding without a uid")
	}
	pod, err := p.assignedPod(ctx, r.GetNamespace(), ref.Name, r.node)
	switch {
	case apierrors.IsNotFound(err):
		return err
	case err != nil:
		return r.refuse("%w", err)
	case ref.UID != pod.UID:
		return r.refuse("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID)
	case pod.Spec.NodeName != r.node:
		return r.refuse("node requested token bound to a pod scheduled on a different node")
	}
	return p.admitAudience(ctx, r, pod, token.Spec.Audiences)
}

// admitAudience refuses an audience that no volume of the pod uses, unless the node
// is authorized to request tokens for it.
func (p *Plugin) admitAudience(ctx context.Context, r request, pod *corev1.Pod, audiences []string) error {
	audience := ""
	switch len(audiences) {
	case 0:
	case 1:
		audience = audiences[0]
	default:
		return r.refuse("node may only request 0 or 1 audiences")
	}
	used, err := p.usesAudience(ctx, pod, audience)
	if used {
		return nil
	}
	if err != nil {
		return r.refuse("error validating audience %q: %w", audience, err)
	}
	allowed, err := p.isAllowed(ctx, r, "request-serviceaccounts-token-audience", audience, r.GetName())
	switch {
	case allowed:
		return nil
	case err != nil:
		return r.refuse("error authorizing %s to request tokens for audience %q: %w", r.GetUserInfo().GetName(), audience, err)
	default:
		return r.refuse("%s is not authorized to request tokens for audience %q", r.GetUserInfo().GetName(), audience)
	}
}

// usesAudience reports whether a pod projects a token for the audience, or has a
// volume whose CSI driver requests one.
func (p *Plugin) usesAudience(ctx context.Context, pod *corev1.Pod, audience string) (bool, error) {
	var errs []error
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if projectsToken(volume, audience) {
			return true, nil
		}
		driver, err := p.driverOf(ctx, pod, volume)
		if err == nil && driver != "" {
			var requests bool
			if requests, err = p.driverRequests(ctx, driver, audience); requests {
				return true, nil
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return false, utilerrors.NewAggregate(errs)
}

func projectsToken(volume *corev1.Volume, audience string) bool {
	if volume.Projected == nil {
		return false
	}
	for _, source := range volume.Projected.Sources {
		if source.ServiceAccountToken != nil && source.ServiceAccountToken.Audience == audience {
			return true
		}
	}
	return false
}

// driverOf returns the CSI driver of a volume, or "". It reads claims, volumes and
// drivers from the API: few requests need them, and an informer would keep all of
// them in memory.
func (p *Plugin) driverOf(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (string, error) {
	var claimName string
	switch {
	case volume.CSI != nil:
		return volume.CSI.Driver, nil
	case volume.PersistentVolumeClaim != nil:
		claimName = volume.PersistentVolumeClaim.ClaimName
	case volume.Ephemeral != nil && volume.Ephemeral.VolumeClaimTemplate != nil:
		claimName = ephemeral.VolumeClaimName(pod, volume)
	default:
		return "", nil
	}
	claim, err := p.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, claimName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	pv, err := p.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil || pv.Spec.CSI == nil {
		return "", err
	}
	return pv.Spec.CSI.Driver, nil
}

// driverRequests reports whether a CSI driver requests tokens for the audience.
func (p *Plugin) driverRequests(ctx context.Context, name, audience string) (bool, error) {
	driver, err := p.client.StorageV1().CSIDrivers().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	for _, token := range driver.Spec.TokenRequests {
		if token.Audience == audience {
			return true, nil
		}
	}
	return false, nil
}

// admitPodCertificate lets a node request certificates for its pods (KEP-4317). A
// mismatch that a stale cache may explain is an error, which the node retries, and
// not a refusal.
func (p *Plugin) admitPodCertificate(ctx context.Context, r request) error {
	if r.GetOperation() != admission.Create {
		return r.refuse("unexpected operation %v", r.GetOperation())
	}
	if r.GetSubresource() != "" {
		return r.refuse("unexpected subresource %v", r.GetSubresource())
	}
	certificate, ok := r.GetObject().(*certificatesv1.PodCertificateRequest)
	if !ok {
		return r.unexpected(r.GetObject())
	}
	spec := &certificate.Spec
	if string(spec.NodeName) != r.node {
		return r.refuse("PodCertificateRequest.Spec.NodeName=%q, which is not the requesting node %q", spec.NodeName, r.node)
	}
	node, err := p.nodeObject(ctx, r.node)
	if err != nil {
		return fmt.Errorf("while retrieving node %q named in the PodCertificateRequest: %w", spec.NodeName, err)
	}
	if node.UID != spec.NodeUID {
		return fmt.Errorf("PodCertificateRequest for pod %q names node UID %q, inconsistent with the running node (%q)", podKey(r, spec), spec.NodeUID, node.UID)
	}
	pod, err := p.certifiedPod(ctx, r, spec)
	if err != nil {
		return err
	}
	if err := p.checkAccount(ctx, r, spec); err != nil {
		return err
	}
	return p.admitSigner(ctx, r, pod, spec)
}

func podKey(r request, spec *certificatesv1.PodCertificateRequestSpec) string {
	return r.GetNamespace() + "/" + spec.PodName
}

// certifiedPod returns the pod of a certificate request, if it is bound to the node
// and matches the request.
func (p *Plugin) certifiedPod(ctx context.Context, r request, spec *certificatesv1.PodCertificateRequestSpec) (*corev1.Pod, error) {
	key := podKey(r, spec)
	pod, err := p.pod(ctx, r.GetNamespace(), spec.PodName)
	if err != nil {
		return nil, fmt.Errorf("while retrieving pod %q named in the PodCertificateRequest: %w", key, err)
	}
	if spec.PodUID != pod.UID {
		return nil, fmt.Errorf("PodCertificateRequest for pod %q contains pod UID (%q) which differs from running pod %q", key, spec.PodUID, pod.UID)
	}
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	switch {
	case pod.Spec.NodeName != r.node:
		return nil, r.refuse("pod %q is not running on node %q named in the PodCertificateRequest", key, spec.NodeName)
	case mirror:
		return nil, r.refuse("pod %q is a mirror pod", key)
	case spec.ServiceAccountName != pod.Spec.ServiceAccountName:
		return nil, r.refuse("PodCertificateRequest for pod %q contains serviceAccountName (%q) that differs from running pod (%q)", key, spec.ServiceAccountName, pod.Spec.ServiceAccountName)
	default:
		return pod, nil
	}
}

func (p *Plugin) checkAccount(ctx context.Context, r request, spec *certificatesv1.PodCertificateRequestSpec) error {
	account, err := p.client.CoreV1().ServiceAccounts(r.GetNamespace()).Get(ctx, spec.ServiceAccountName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("while retrieving service account %q named in the PodCertificateRequest: %w", r.GetNamespace()+"/"+spec.ServiceAccountName, err)
	}
	if spec.ServiceAccountUID != account.UID {
		return fmt.Errorf("PodCertificateRequest for pod %q names service account UID %q, which differs from the running service account (%q)", podKey(r, spec), spec.ServiceAccountUID, account.UID)
	}
	return nil
}

// admitSigner refuses a signer that no volume of the pod names, unless the node is
// authorized to use it.
func (p *Plugin) admitSigner(ctx context.Context, r request, pod *corev1.Pod, spec *certificatesv1.PodCertificateRequestSpec) error {
	for _, volume := range pod.Spec.Volumes {
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.PodCertificate != nil && source.PodCertificate.SignerName == spec.SignerName {
				return nil
			}
		}
	}
	// A resource name in RBAC cannot contain a slash.
	signer := strings.ReplaceAll(spec.SignerName, "/", ":")
	allowed, err := p.isAllowed(ctx, r, "request-serviceaccounts-podcertificate-signer", signer, spec.ServiceAccountName)
	switch {
	case allowed:
		return nil
	case err != nil:
		return r.refuse("error authorizing %s to request podcertificaterequests for signer %q: %w", r.GetUserInfo().GetName(), spec.SignerName, err)
	default:
		return r.refuse("pod %q does not mount a podCertificate projected volume for signer %q", r.GetNamespace()+"/"+spec.PodName, spec.SignerName)
	}
}
