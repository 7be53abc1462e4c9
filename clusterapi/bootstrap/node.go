// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	tokenutil "k8s.io/cluster-bootstrap/token/util"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/kindred-project/kindred/clusterapi/api/bootstrap/v1alpha1"
)

// node returns the bootstrap data of a node. The machine starts with the first server of its cluster, and waits until it can join.
func (r *Reconciler) node(ctx context.Context, cluster *clusterv1.Cluster, files []file, flags []string) (data, error) {
	hash, err := r.Workload.Authority(ctx, cluster)
	if apierrors.IsNotFound(err) {
		return data{}, waits{reason: bootstrapv1.WaitingForControlPlaneReason, message: "the Secret with the kubeconfig of the cluster does not exist yet", retry: true}
	}
	if err != nil {
		return data{}, err
	}
	token, err := tokenutil.GenerateBootstrapToken()
	if err != nil {
		return data{}, err
	}
	join := []string{"join", "https://" + cluster.Spec.ControlPlaneEndpoint.String(), "--token", token, "--ca-hash", hash, "--wait", joinWait.String()}
	return data{Args: append(join, flags...), Files: files, token: token}, nil
}

// admit makes the token of the machine known in the cluster, once.
func (r *Reconciler) admit(ctx context.Context, cluster *clusterv1.Cluster, c *bootstrapv1.KindredConfig, s *corev1.Secret) (ctrl.Result, error) {
	if token := string(s.Data[tokenKey]); token != "" {
		if err := r.Workload.Answers(ctx, cluster); err != nil {
			awaitControlPlane(c)
			return ctrl.Result{RequeueAfter: r.pause(s)}, nil
		}
		if err := r.Workload.Admit(ctx, cluster, token, tokenTTL); err != nil {
			set(c, metav1.ConditionFalse, bootstrapv1.AdmissionFailedReason, err.Error(), machineAdmitted, clusterv1.ReadyCondition)
			return ctrl.Result{}, fmt.Errorf("make the token of the machine known in the cluster: %w", err)
		}
		before := s.DeepCopy()
		delete(s.Data, tokenKey)
		if err := r.Client.Patch(ctx, s, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, err
		}
	}
	set(c, metav1.ConditionTrue, bootstrapv1.AdmittedReason, "", machineAdmitted, clusterv1.ReadyCondition)
	return ctrl.Result{}, nil
}

func awaitControlPlane(c *bootstrapv1.KindredConfig) {
	set(c, metav1.ConditionFalse, bootstrapv1.WaitingForControlPlaneReason, "the API of the cluster has not answered yet", machineAdmitted, clusterv1.ReadyCondition)
}

const minPause, maxPause = 200 * time.Millisecond, 15 * time.Second

// pause returns the time until a cluster that does not answer is asked again: a tenth of the time for which it has been awaited.
func (r *Reconciler) pause(s *corev1.Secret) time.Duration {
	return min(max(r.Clock.Since(s.CreationTimestamp.Time)/10, minPause), maxPause)
}
