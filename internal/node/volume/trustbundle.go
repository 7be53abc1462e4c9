// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// trustPeriod is the interval at which trust bundles are read. They are not watched, because roots change rarely and
// are published long before they are needed.
const trustPeriod = time.Minute

func (m *Manager) trustFile(ctx context.Context, pod *v1.Pod, source *v1.ClusterTrustBundleProjection, mode *int32) (payload, time.Time, error) {
	bundles, err := m.trustBundles(ctx, source)
	if err != nil {
		return nil, time.Time{}, err
	}
	again := m.options.Clock.Now().Add(trustPeriod)
	return credential(pod, source.Path, anchors(bundles), mode), again, nil
}

func (m *Manager) trustBundles(ctx context.Context, source *v1.ClusterTrustBundleProjection) ([]certificatesv1.ClusterTrustBundle, error) {
	client, optional := m.options.Client.CertificatesV1().ClusterTrustBundles(), ptr.Deref(source.Optional, false)
	switch {
	case source.Name != nil:
		bundle, err := client.Get(ctx, *source.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) && optional {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("while getting ClusterTrustBundle: %w", err)
		}
		return []certificatesv1.ClusterTrustBundle{*bundle}, nil
	case source.SignerName != nil:
		// A missing selector matches nothing (core/v1 ClusterTrustBundleProjection).
		selector, err := metav1.LabelSelectorAsSelector(source.LabelSelector)
		if err != nil {
			return nil, fmt.Errorf("while parsing label selector: %w", err)
		}
		list, err := client.List(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("spec.signerName", *source.SignerName).String(),
			LabelSelector: selector.String(),
		})
		if err != nil {
			return nil, fmt.Errorf("while listing ClusterTrustBundles matching label selector %v: %w", selector, err)
		}
		matches := matching(list.Items, *source.SignerName, selector)
		if len(matches) == 0 && !optional {
			return nil, fmt.Errorf("combination of signerName and labelSelector matched zero ClusterTrustBundles")
		}
		return matches, nil
	}
	return nil, fmt.Errorf("ClusterTrustBundle projection requires either name or signerName to be set")
}

func matching(bundles []certificatesv1.ClusterTrustBundle, signer string, selector labels.Selector) []certificatesv1.ClusterTrustBundle {
	return slices.DeleteFunc(bundles, func(b certificatesv1.ClusterTrustBundle) bool {
		return b.Spec.SignerName != signer || !selector.Matches(labels.Set(b.Labels))
	})
}

// anchors returns each certificate of the bundles once, without headers and comments.
func anchors(bundles []certificatesv1.ClusterTrustBundle) []byte {
	var all [][]byte
	for _, bundle := range bundles {
		rest := []byte(bundle.Spec.TrustBundle)
		for block, left := pem.Decode(rest); block != nil; block, left = pem.Decode(left) {
			all = append(all, block.Bytes)
		}
	}
	slices.SortFunc(all, bytes.Compare)
	var out bytes.Buffer
	for _, certificate := range slices.CompactFunc(all, bytes.Equal) {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}))
	}
	return out.Bytes()
}
