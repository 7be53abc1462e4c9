// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// refuseKnownNode denies the certificate of a node that exists to a machine with a bootstrap token: any token would be enough to take
// its place, and get its pods' secrets. The machine itself renews its certificate with its key.
func refuseKnownNode(ctx context.Context, r *reconciler, wanted *x509.CertificateRequest) (approve bool, denial string, err error) {
	name := strings.TrimPrefix(wanted.Subject.CommonName, nodePrefix)
	err = r.client.Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{})
	if apierrors.IsNotFound(err) {
		return true, "", nil
	}
	return false, fmt.Sprintf("node %s exists, and this machine does not have its key; choose another name, or delete the node first if its machine is gone", name), err
}

// ownServingCertificate reports whether a node requests a certificate for its own server.
func ownServingCertificate(r *request, wanted *x509.CertificateRequest) bool {
	return r.Spec.SignerName == certificatesv1.KubeletServingSignerName && r.Spec.Username == wanted.Subject.CommonName &&
		checkNodeServing(wanted, r.Spec.Usages) == nil
}

// hasOwnNames reports whether a node requests a certificate only for names and addresses that its Node has and no other one. A request
// for others waits for an administrator, or for the Node to have them.
func hasOwnNames(ctx context.Context, r *reconciler, wanted *x509.CertificateRequest) (approve bool, denial string, err error) {
	var nodes corev1.NodeList
	if err := r.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return false, "", err
	}
	owners := map[string][]string{}
	for i := range nodes.Items {
		for _, name := range namesOf(&nodes.Items[i]) {
			owners[name] = append(owners[name], nodes.Items[i].Name)
		}
	}
	own := strings.TrimPrefix(wanted.Subject.CommonName, nodePrefix)
	for _, name := range requested(wanted) {
		if !slices.Equal(slices.Compact(owners[name]), []string{own}) {
			return false, "", nil
		}
	}
	return true, "", nil
}

// namesOf returns the name of a node, and the names and addresses in its status.
func namesOf(node *corev1.Node) []string {
	names := []string{node.Name}
	for _, a := range node.Status.Addresses {
		names = append(names, canonical(a.Address))
	}
	return names
}

// requested returns the names and addresses of a requested certificate.
func requested(wanted *x509.CertificateRequest) []string {
	names := slices.Clone(wanted.DNSNames)
	for _, ip := range wanted.IPAddresses {
		names = append(names, canonical(ip.String()))
	}
	return names
}

// canonical returns the usual form of an address, and other names as they are.
func canonical(name string) string {
	if address, err := netip.ParseAddr(name); err == nil {
		return address.Unmap().String()
	}
	return name
}
