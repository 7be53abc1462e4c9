// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package noderestriction

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"
)

// admitNode lets a node write its own Node, except for taints and labels that could attract pods.
func admitNode(r request) error {
	if r.GetName() != r.node {
		return r.refuse("node %q is not allowed to modify node %q", r.node, r.GetName())
	}
	if r.GetOperation() == admission.Delete {
		return nil
	}
	after, ok := r.GetObject().(*corev1.Node)
	if !ok {
		return r.unexpected(r.GetObject())
	}
	if r.GetOperation() == admission.Create {
		// A config source would let the node read any ConfigMap.
		if configSource(after) != nil {
			return r.refuse("node %q is not allowed to create pods with a non-nil configSource", r.node)
		}
		if labels := forbiddenLabels(after.Labels, nil); len(labels) > 0 {
			return r.refuse("node %q is not allowed to set the following labels: %s", r.node, strings.Join(labels, ", "))
		}
		return nil
	}
	before, ok := r.GetOldObject().(*corev1.Node)
	if !ok {
		return r.unexpected(r.GetOldObject())
	}
	switch labels := forbiddenLabels(after.Labels, before.Labels); {
	case configSource(after) != nil && !equality.Semantic.DeepEqual(configSource(after), configSource(before)):
		return r.refuse("node %q is not allowed to update configSource to a new non-nil configSource", r.node)
	case !equality.Semantic.DeepEqual(after.Spec.Taints, before.Spec.Taints):
		return r.refuse("node %q is not allowed to modify taints", r.node)
	case !equality.Semantic.DeepEqual(after.OwnerReferences, before.OwnerReferences):
		return r.refuse("node %q is not allowed to modify ownerReferences", r.node)
	case len(labels) > 0:
		return r.refuse("is not allowed to modify labels: %s", strings.Join(labels, ", "))
	default:
		return nil
	}
}

func configSource(n *corev1.Node) *corev1.NodeConfigSource {
	//lint:ignore SA1019 Nothing reads the field any more, but upstream still refuses it.
	return n.Spec.ConfigSource
}

// Labels in Kubernetes' domains that a node may set on itself.
var (
	nodeLabels = []string{
		corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
		corev1.LabelInstanceType, corev1.LabelInstanceTypeStable,
	}
	nodeLabelNamespaces = []string{corev1.LabelNamespaceSuffixKubelet, corev1.LabelNamespaceSuffixNode}
)

// forbiddenLabels returns the labels that a node has changed and may not set: those
// reserved for administrators (node-restriction.kubernetes.io/), and all others in
// Kubernetes' domains but those listed above.
func forbiddenLabels(after, before map[string]string) []string {
	var forbidden []string
	for _, key := range differing(after, before) {
		namespace, _, ok := strings.Cut(key, "/")
		if !ok {
			continue
		}
		reserved := under(namespace, corev1.LabelNamespaceNodeRestriction)
		kubernetes := under(namespace, "kubernetes.io") || under(namespace, "k8s.io")
		if reserved || kubernetes && !isSettable(key, namespace) {
			forbidden = append(forbidden, key)
		}
	}
	slices.Sort(forbidden)
	return forbidden
}

func isSettable(key, namespace string) bool {
	return slices.Contains(nodeLabels, key) ||
		slices.ContainsFunc(nodeLabelNamespaces, func(allowed string) bool { return under(namespace, allowed) })
}

// under reports whether a label's namespace is the domain or a subdomain of it.
func under(namespace, domain string) bool {
	return namespace == domain || strings.HasSuffix(namespace, "."+domain)
}

// differing returns the keys that only one of two maps has, or whose values differ.
func differing(a, b map[string]string) []string {
	var keys []string
	for key, value := range a {
		if other, found := b[key]; !found || other != value {
			keys = append(keys, key)
		}
	}
	for key := range b {
		if _, found := a[key]; !found {
			keys = append(keys, key)
		}
	}
	return keys
}

func admitLease(r request) error {
	if r.GetNamespace() != corev1.NamespaceNodeLease {
		return r.refuse("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	}
	return admitSameName(r, "node lease")
}

// admitSameName lets a node write only the object that has its name. The name of a
// create is in the object.
func admitSameName(r request, kind string) error {
	name := r.GetName()
	if r.GetOperation() == admission.Create {
		m, err := meta.Accessor(r.GetObject())
		if err != nil {
			return r.refuse("unable to access the object name")
		}
		name = m.GetName()
	}
	if name != r.node {
		return r.refuse("can only access %s with the same name as the requesting node", kind)
	}
	return nil
}

// admitSlice checks the object of a create, and each object of a deletecollection,
// which the authorizer cannot see.
func admitSlice(r request) error {
	var (
		obj  any
		verb string
	)
	switch r.GetOperation() {
	case admission.Create:
		obj, verb = r.GetObject(), "create"
	case admission.Delete:
		obj, verb = r.GetOldObject(), "delete"
	default:
		return nil
	}
	slice, ok := obj.(*resourcev1.ResourceSlice)
	if !ok {
		return r.unexpected(obj)
	}
	if ptr.Deref(slice.Spec.NodeName, "") != r.node {
		return r.refuse("can only %s ResourceSlice with the same NodeName as the requesting node", verb)
	}
	return nil
}

// admitClaim lets a node report the progress of a volume's resize.
func admitClaim(r request) error {
	if r.GetSubresource() != "status" {
		return r.refuse("may only update PVC status")
	}
	if r.GetOperation() != admission.Update {
		return r.refuse("unexpected operation %q", r.GetOperation())
	}
	before, ok := r.GetOldObject().(*corev1.PersistentVolumeClaim)
	if !ok {
		return r.unexpected(r.GetOldObject())
	}
	after, ok := r.GetObject().(*corev1.PersistentVolumeClaim)
	if !ok {
		return r.unexpected(r.GetObject())
	}
	if !equality.Semantic.DeepEqual(fixedPart(before), fixedPart(after)) {
		return r.refuse("node %q is not allowed to update fields other than status.quantity and status.conditions", r.node)
	}
	return nil
}

// fixedPart returns a claim without the fields that a node may change, and without
// those that the API server changes.
func fixedPart(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	c := claim.DeepCopy()
	c.ResourceVersion, c.ManagedFields = "", nil
	c.Status.Capacity, c.Status.Conditions = nil, nil
	c.Status.AllocatedResources, c.Status.AllocatedResourceStatuses = nil, nil
	return c
}

// admitCertificate lets a node request certificates only in its own name. The
// signers check the rest.
func admitCertificate(r request) error {
	if r.GetOperation() != admission.Create {
		return nil
	}
	signing, ok := r.GetObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return r.unexpected(r.GetObject())
	}
	if s := signing.Spec.SignerName; s != certificatesv1.KubeletServingSignerName && s != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return nil
	}
	block, _ := pem.Decode(signing.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return r.refuse("unable to parse csr: PEM block type must be CERTIFICATE REQUEST")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return r.refuse("unable to parse csr: %w", err)
	}
	if parsed.Subject.CommonName != "system:node:"+r.node {
		return r.refuse("can only create a node CSR with CN=system:node:%s", r.node)
	}
	return nil
}
