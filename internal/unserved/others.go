// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package unserved

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/utils/ptr"
)

// findInJob finds what nothing acts on in a Job, or in the template of a CronJob, beside its pods.
func findInJob(object any) []Finding {
	var manager *string
	path := "spec"
	switch o := object.(type) {
	case *batchv1.Job:
		manager = o.Spec.ManagedBy
	case *batchv1.CronJob:
		manager, path = o.Spec.JobTemplate.Spec.ManagedBy, "spec.jobTemplate.spec"
	}
	name := ptr.Deref(manager, batchv1.JobControllerName)
	if name == batchv1.JobControllerName {
		return nil
	}
	return []Finding{{&managedBy, fmt.Sprintf("%s.managedBy: the controller of this cluster is %q; "+
		"the Job has no pods until the controller %q creates them", path, batchv1.JobControllerName, name)}}
}

func findInSigningRequest(r *certificatesv1.CertificateSigningRequest) []Finding {
	switch r.Spec.SignerName {
	case certificatesv1.KubeAPIServerClientSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName,
		certificatesv1.KubeletServingSignerName, "kubernetes.io/legacy-unknown":
		return nil
	}
	return []Finding{{&signerName, fmt.Sprintf("spec.signerName: no signer of this cluster is %q; "+
		"there is no certificate until a signer of that name issues one", r.Spec.SignerName)}}
}
