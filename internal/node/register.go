// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/metrics"
	"github.com/kindred-project/kindred/internal/unserved"
)

// The beta labels, which upstream still sets as well.
const (
	betaOS   = "beta.kubernetes.io/os"
	betaArch = "beta.kubernetes.io/arch"
)

// managedAttach is the annotation of nodes whose volumes the attach-detach controller attaches.
const managedAttach = "volumes.kubernetes.io/controller-managed-attach-detach"

// registration maintains the Node object and its lease.
type registration struct {
	options  Options
	reporter *reporter
	record   func(eventType, reason, message string)
	startup  *metrics.Startup // nil in tests that do not need it
	changed  chan struct{}    // something that the status shows has changed

	mu   sync.Mutex
	node *v1.Node  // the newest that the API returned
	sent time.Time // when the status was last written
}

// current returns the newest Node object.
func (s *registration) current() *v1.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node
}

// observe takes the Node object from the watch.
func (s *registration) observe(node *v1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node = node
}

// check has the status computed soon, because something that it shows has changed.
func (s *registration) check() {
	select {
	case s.changed <- struct{}{}:
	default: // it will be
	}
}

// begin computes the Node as it will be registered. Static pods are admitted by it before the API can be reached.
func (s *registration) begin(ctx context.Context) {
	node := s.initial()
	node.Status = s.reporter.status(ctx, &node.Status, s.options.Clock.Now())
	s.observe(node)
}

// register makes sure that the Node exists. It retries until it succeeds or ctx ends.
func (s *registration) register(ctx context.Context) {
	for {
		err := s.tryRegister(ctx)
		if err == nil {
			s.recordChanges(nil, s.current().Status.Conditions)
			return
		}
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot register the node, will retry", "node", s.options.Name)
		}
		if !s.pause(ctx, registerRetry) {
			return
		}
	}
}

// keepLease renews the node's lease, its heartbeat (KEP-589).
func (s *registration) keepLease(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	seconds := s.options.Config.NodeLeaseDurationSeconds
	lease.NewController(s.options.Clock, s.options.Client, s.options.Name, seconds, nil,
		time.Duration(seconds)*time.Second/leaseRenewals, s.options.Name, v1.NamespaceNodeLease, s.setLeaseOwner).Run(ctx)
}

// pause waits for d. It returns false if ctx ends first.
func (s *registration) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s.options.Clock.After(d):
		return true
	}
}

// setLeaseOwner makes the Node the owner of the lease.
func (s *registration) setLeaseOwner(lease *coordinationv1.Lease) error {
	node := s.current()
	if len(lease.OwnerReferences) > 0 || node.UID == "" {
		return nil
	}
	lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	return nil
}

// tryRegister makes sure that the Node exists and has its labels and annotation.
func (s *registration) tryRegister(ctx context.Context) error {
	s.startup.Attempted()
	nodes := s.options.Client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, s.options.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		fresh := s.initial()
		fresh.Status = s.reporter.status(ctx, &fresh.Status, s.options.Clock.Now())
		if node, err = nodes.Create(ctx, fresh, metav1.CreateOptions{}); err == nil {
			s.startup.Registered()
		}
	}
	if err != nil {
		return fmt.Errorf("get or create node: %w", err)
	}
	want := s.initial()
	if !containsAll(node.Labels, want.Labels) || !containsAll(node.Annotations, want.Annotations) {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": want.Labels, "annotations": want.Annotations}})
		if err != nil {
			return fmt.Errorf("encode labels: %w", err)
		}
		if node, err = nodes.Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("label node: %w", err)
		}
	}
	s.observe(node)
	return nil
}

// containsAll reports whether have has all entries of want.
func containsAll(have, want map[string]string) bool {
	for key, value := range want {
		if got, ok := have[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// initial returns the Node object to register.
func (s *registration) initial() *v1.Node {
	labels := map[string]string{
		v1.LabelHostname:   s.options.Name,
		v1.LabelOSStable:   goruntime.GOOS,
		v1.LabelArchStable: goruntime.GOARCH,
		betaOS:             goruntime.GOOS,
		betaArch:           goruntime.GOARCH,
	}
	maps.Copy(labels, s.options.Labels)
	annotations := map[string]string{managedAttach: "true", unserved.LacksAnnotation: s.reporter.lacks()}
	maps.Copy(annotations, s.options.Annotations)
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.options.Name, Labels: labels, Annotations: annotations},
		Spec:       v1.NodeSpec{Taints: append(slices.Clone(s.options.Taints), s.options.Config.RegisterWithTaints...), ProviderID: s.options.Config.ProviderID},
	}
	if ranges := s.options.PodCIDRs; len(ranges) > 0 {
		node.Spec.PodCIDR, node.Spec.PodCIDRs = ranges[0], ranges
	}
	return node
}

// keepStatus writes the status when it has changed, and otherwise every nodeStatusReportFrequency. It calls ready
// each time that it finds the node ready in the API. Until the node is first ready, it checks more often,
// because the runtime's network may take some seconds to start.
func (s *registration) keepStatus(ctx context.Context, ready func()) {
	pause := unreadyCheck
	for ctx.Err() == nil {
		isReady, err := s.sync(ctx)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot write the node's status, will retry", "node", s.options.Name)
		}
		if isReady {
			s.startup.Ready()
			ready()
			pause = s.options.Config.NodeStatusUpdateFrequency.Duration
		}
		select {
		case <-ctx.Done():
		case <-s.changed:
		case <-s.options.Clock.After(pause):
		}
	}
}

// sync updates the API's status and reports whether the node is ready in the API.
func (s *registration) sync(ctx context.Context) (ready bool, err error) {
	node, now := s.current(), s.options.Clock.Now()
	status := s.reporter.status(ctx, &node.Status, now)
	if s.options.alone {
		return s.keep(node, status), nil
	}
	if sameStatus(&node.Status, &status) && len(wrongLabels(node)) == 0 && now.Sub(s.sent) < s.options.Config.NodeStatusReportFrequency.Duration {
		return isReady(node), nil
	}
	updated, err := s.patch(ctx, node, status)
	if apierrors.IsNotFound(err) {
		return false, s.tryRegister(ctx) // the Node was deleted
	}
	if err != nil {
		return false, err
	}
	s.recordChanges(node.Status.Conditions, status.Conditions)
	s.recordReboot(node.Status.NodeInfo.BootID, status.NodeInfo.BootID)
	s.observe(updated)
	s.sent = now
	return isReady(updated), nil
}

// keep stores the status of a node without an API, and reports whether the node is ready.
func (s *registration) keep(node *v1.Node, status v1.NodeStatus) (ready bool) {
	s.recordChanges(node.Status.Conditions, status.Conditions)
	node = node.DeepCopy()
	node.Status = status
	s.observe(node)
	return isReady(node)
}

func (s *registration) patch(ctx context.Context, node *v1.Node, status v1.NodeStatus) (*v1.Node, error) {
	patch, err := nodeStatusPatch(node, status)
	if err != nil {
		return nil, err
	}
	return s.options.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}

// wrongLabels returns the labels of operating system and architecture with their values, if clients changed them. The agent
// refuses pods by the real ones.
func wrongLabels(node *v1.Node) map[string]any {
	wrong := map[string]any{}
	for label, want := range map[string]string{v1.LabelOSStable: goruntime.GOOS, v1.LabelArchStable: goruntime.GOARCH} {
		if node.Labels[label] != want {
			wrong[label] = want
		}
	}
	return wrong
}

// nodeStatusPatch returns the strategic merge patch to the new status, which corrects labels as well. It replaces addresses as a
// whole: their merge key is the type, although several may have one type (a known mistake of the API).
func nodeStatusPatch(node *v1.Node, status v1.NodeStatus) ([]byte, error) {
	addresses := status.Addresses
	status.Addresses = node.Status.Addresses
	change, err := changeOf(&v1.Node{Status: node.Status}, &v1.Node{Status: status})
	if err != nil {
		return nil, err
	}
	if !slices.Equal(addresses, node.Status.Addresses) {
		list := make([]any, 0, len(addresses)+1)
		for _, a := range addresses {
			list = append(list, map[string]any{"type": string(a.Type), "address": a.Address})
		}
		list = append(list, map[string]any{"$patch": "replace"})
		if err := unstructured.SetNestedSlice(change, list, "status", "addresses"); err != nil {
			return nil, fmt.Errorf("set addresses: %w", err)
		}
	}
	if wrong := wrongLabels(node); len(wrong) > 0 {
		change["metadata"] = map[string]any{"labels": wrong}
	}
	return json.Marshal(change)
}

// recordChanges records an event for each condition whose status changed. If old is empty, the Node has
// just been registered: then it records only the agent's own conditions, and omits NodeNotReady, because
// every new node starts that way.
func (s *registration) recordChanges(old, now []v1.NodeCondition) {
	for _, c := range now {
		before := conditionIn(old, c.Type)
		if before != nil && before.Status == c.Status {
			continue
		}
		if before == nil && (!strings.HasPrefix(c.Reason, "Kubelet") || c.Reason == reasonNotReady) {
			continue
		}
		event := eventFor(c)
		s.record(v1.EventTypeNormal, event, fmt.Sprintf("Node %s status is now: %s", s.options.Name, event))
	}
}

// recordReboot records that the machine was booted since the status was last written.
func (s *registration) recordReboot(old, now string) {
	if old != "" && old != now {
		s.record(v1.EventTypeWarning, "Rebooted", fmt.Sprintf("Node %s has been rebooted, boot id: %s", s.options.Name, now))
	}
}

// sameStatus reports whether two statuses differ in nothing but heartbeat times.
func sameStatus(a, b *v1.NodeStatus) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, s := range []*v1.NodeStatus{a, b} {
		for i := range s.Conditions {
			s.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
	}
	return equality.Semantic.DeepEqual(a, b)
}

func isReady(node *v1.Node) bool {
	c := conditionIn(node.Status.Conditions, v1.NodeReady)
	return c != nil && c.Status == v1.ConditionTrue
}
