// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/kindred-project/kindred/clusterapi/api/controlplane/v1alpha1"
)

// owned are the conditions that this controller sets.
var owned = []string{
	clusterv1.AvailableCondition, clusterv1.RollingOutCondition, clusterv1.ScalingUpCondition, clusterv1.ScalingDownCondition, clusterv1.DeletingCondition,
	clusterv1.RemediatingCondition, controlplanev1.MachinesOwnedCondition,
	clusterv1.MachinesReadyCondition, clusterv1.MachinesUpToDateCondition, controlplanev1.CertificatesAvailableCondition, controlplanev1.InitializedCondition,
}

func set(s *scope, kind string, status metav1.ConditionStatus, reason, message string) {
	conditions.Set(s.KindredControlPlane, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
}

// report sets the status by what was found.
func (s *scope) report() {
	if s.machines == nil {
		s.machines = collections.New()
	}
	s.count()
	s.reportScale()
	s.reportRemediation()
	s.reportAvailable()
	s.reportMachines(clusterv1.MachinesReadyCondition, clusterv1.ReadyCondition, clusterv1.ReadyReason)
	s.reportMachines(clusterv1.MachinesUpToDateCondition, clusterv1.MachineUpToDateCondition, clusterv1.UpToDateReason)
	if s.DeletionTimestamp.IsZero() {
		set(s, clusterv1.DeletingCondition, metav1.ConditionFalse, clusterv1.NotDeletingReason, "")
		return
	}
	set(s, clusterv1.DeletingCondition, metav1.ConditionTrue, clusterv1.DeletingReason, fmt.Sprintf("%d machines are left", len(s.machines)))
}

// count counts machines by their conditions and versions.
func (s *scope) count() {
	s.Status.Selector = collections.ControlPlaneSelectorForCluster(s.cluster.Name).String()
	var ready, available, upToDate int32
	versions := map[string]int32{}
	for _, m := range s.machines {
		if conditions.IsTrue(m, clusterv1.MachineReadyCondition) {
			ready++
		}
		if conditions.IsTrue(m, clusterv1.MachineAvailableCondition) {
			available++
		}
		if conditions.IsTrue(m, clusterv1.MachineUpToDateCondition) {
			upToDate++
		}
		if m.Spec.Version != "" {
			versions[m.Spec.Version]++
		}
	}
	s.Status.Replicas, s.Status.ReadyReplicas = ptr.To(int32(len(s.machines))), ptr.To(ready)
	s.Status.AvailableReplicas, s.Status.UpToDateReplicas = ptr.To(available), ptr.To(upToDate)
	// Before the first machine it is the version which that will have: Cluster API makes no workers for a control plane without a version, and
	// looks again after 15 s.
	s.Status.Versions, s.Status.Version = nil, version(s.Spec.Version)
	for v, replicas := range versions {
		s.Status.Versions = append(s.Status.Versions, clusterv1.StatusVersion{Version: v, Replicas: replicas})
	}
	slices.SortFunc(s.Status.Versions, func(a, b clusterv1.StatusVersion) int { return semver.Compare(a.Version, b.Version) })
	if len(s.Status.Versions) > 0 {
		s.Status.Version = s.Status.Versions[0].Version
	}
}

// reportScale sets the conditions RollingOut, ScalingUp and ScalingDown, with what they wait for.
func (s *scope) reportScale() {
	outdated := 0
	for _, m := range s.machines {
		if len(s.outdated[m.Name]) > 0 {
			outdated++
		}
	}
	s.setProgress(clusterv1.RollingOutCondition, outdated > 0, clusterv1.RollingOutReason, clusterv1.NotRollingOutReason, fmt.Sprintf("Rolling out %d not up-to-date replicas", outdated))
	wanted := int(ptr.Deref(s.Spec.Replicas, 1))
	if !s.DeletionTimestamp.IsZero() {
		wanted = 0
	}
	change := fmt.Sprintf("Scaling from %d to %d replicas", len(s.machines), wanted)
	if s.next.message != "" {
		change += ": " + s.next.message
	}
	s.setProgress(clusterv1.ScalingUpCondition, len(s.machines) < wanted, clusterv1.ScalingUpReason, clusterv1.NotScalingUpReason, change)
	s.setProgress(clusterv1.ScalingDownCondition, len(s.machines) > wanted, clusterv1.ScalingDownReason, clusterv1.NotScalingDownReason, change)
}

// reportRemediation sets the condition Remediating, with the reason why an unhealthy machine is not replaced.
func (s *scope) reportRemediation() {
	sick := s.machines.Filter(collections.IsUnhealthyAndOwnerRemediated).Names()
	slices.Sort(sick)
	message := "Unhealthy machines: " + strings.Join(sick, ", ")
	if s.next.message != "" {
		message += "; " + s.next.message
	}
	s.setProgress(clusterv1.RemediatingCondition, len(sick) > 0, clusterv1.RemediatingReason, clusterv1.NotRemediatingReason, message)
}

// setProgress sets a condition that is true while something goes on.
func (s *scope) setProgress(kind string, goesOn bool, reason, otherwise, message string) {
	if goesOn {
		set(s, kind, metav1.ConditionTrue, reason, message)
		return
	}
	set(s, kind, metav1.ConditionFalse, otherwise, "")
}

// reportAvailable sets the conditions Available and Initialized.
func (s *scope) reportAvailable() {
	switch {
	case !s.DeletionTimestamp.IsZero():
		set(s, clusterv1.AvailableCondition, metav1.ConditionFalse, clusterv1.NotAvailableReason, "the control plane is being deleted")
	case !s.initialized():
		set(s, controlplanev1.InitializedCondition, metav1.ConditionFalse, "NotInitialized", s.next.message)
		set(s, clusterv1.AvailableCondition, metav1.ConditionFalse, clusterv1.NotAvailableReason, "no server has answered yet")
	case s.silence != nil:
		set(s, controlplanev1.InitializedCondition, metav1.ConditionTrue, "Initialized", "")
		set(s, clusterv1.AvailableCondition, metav1.ConditionFalse, clusterv1.NotAvailableReason, "the API does not answer: "+s.silence.Error())
	default:
		set(s, controlplanev1.InitializedCondition, metav1.ConditionTrue, "Initialized", "")
		set(s, clusterv1.AvailableCondition, metav1.ConditionTrue, clusterv1.AvailableReason, "")
	}
}

// reportMachines aggregates a condition of all machines.
func (s *scope) reportMachines(kind, ofMachines, reason string) {
	if len(s.machines) == 0 {
		set(s, kind, metav1.ConditionTrue, clusterv1.NoReplicasReason, "")
		return
	}
	aggregate, err := conditions.NewAggregateCondition(s.machines.UnsortedList(), ofMachines, conditions.TargetConditionType(kind))
	if err != nil {
		set(s, kind, metav1.ConditionUnknown, clusterv1.InternalErrorReason, err.Error())
		return
	}
	if aggregate.Status == metav1.ConditionTrue {
		aggregate.Reason = reason
	}
	conditions.Set(s.KindredControlPlane, *aggregate)
}
