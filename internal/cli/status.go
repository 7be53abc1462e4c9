// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/containerd"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/join"
	"github.com/kindred-project/kindred/internal/machine"
	"github.com/kindred-project/kindred/internal/storage"
)

// statusLimit is the timeout of requests to the API.
const statusLimit = 10 * time.Second

func newStatus() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the cluster",
		Long: `Shows the process, its addresses, the health of its parts, nodes and pods. The exit
status is 0 if the cluster is ready with all its servers, members of etcd and nodes, and 1 if it
is not or does not run.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := wantsJSON(output)
			if err != nil {
				return err
			}
			layout, err := layoutOf(cmd)
			if err != nil {
				return err
			}
			status, err := statusOf(cmd.Context(), layout)
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(cmd, status)
			} else {
				status.print(cmd, clock.RealClock{})
			}
			if err != nil {
				return err
			}
			return status.verdict()
		},
	}
	addOutputFlag(cmd, &output)
	return cmd
}

// status is the state of a running cluster.
type status struct {
	DataDir          string `json:"dataDir"`
	datadir.Instance `json:",inline"`
	// Joined is set if the machine is a node of a cluster that runs elsewhere.
	Joined bool `json:"joined,omitempty"`
	Ready  bool `json:"ready"`
	// Failing lists the checks of /readyz that fail. Problem is why the API does not respond.
	Failing []string `json:"failing,omitempty"`
	Problem string   `json:"problem,omitempty"`
	// Servers are those of a cluster whose servers share a store; a node does not know them.
	Servers []serverStatus `json:"servers,omitempty"`
	// Members are those of the etcd cluster, if the embedded etcd is one of them.
	Members []storage.MemberStatus `json:"etcdMembers,omitempty"`
	Nodes   nodeCount              `json:"nodes"`
	Pods    map[string]int         `json:"pods"`
	// Held is the number of objects on hold. HoldsProblem is why it is not known.
	Held         int    `json:"held"`
	HoldsProblem string `json:"holdsProblem,omitempty"`
	// Firewalls are messages about firewalls of the machine that may drop packets of pods.
	Firewalls []string `json:"firewalls,omitempty"`
}

type nodeCount struct {
	Total int `json:"total"`
	Ready int `json:"ready"`
	// NotReady are the names of those that are not. Versions are the different ones.
	NotReady []string `json:"notReady,omitempty"`
	Versions []string `json:"versions,omitempty"`
}

func statusOf(ctx context.Context, layout datadir.Layout) (*status, error) {
	instance, err := running(layout)
	if err != nil {
		return nil, err
	}
	if instance.Server == "" {
		return nil, fmt.Errorf("node %s runs there without an API server (process %d); \"kindred kubectl get --raw /pods\" shows its pods", instance.NodeName, instance.PID)
	}
	s := &status{DataDir: layout.Root, Instance: instance, Pods: map[string]int{}}
	s.readFirewalls(ctx, layout)
	config, joined, err := accessOf(layout)
	if err != nil {
		return nil, err
	}
	s.Joined, config.QPS = joined, -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	if err := s.read(ctx, client); err != nil {
		s.Ready, s.Problem = false, err.Error()
		return s, nil
	}
	if joined {
		return s, nil // a node may ask neither for objects on hold nor for servers
	}
	if len(s.Etcd) > 0 || s.EtcdMember != "" { // others may share the store
		if err := errors.Join(s.readServers(ctx, client, clock.RealClock{}.Now()), s.readMembers(ctx, layout)); err != nil {
			s.Ready, s.Problem = false, err.Error()
			return s, nil
		}
	}
	if err := s.readHolds(ctx, config); err != nil {
		s.HoldsProblem = err.Error()
	}
	return s, nil
}

// accessOf returns the access to the API that a data directory has: an administrator's, or that of a node, if this machine has joined a
// cluster.
func accessOf(layout datadir.Layout) (config *rest.Config, joined bool, err error) {
	credentials, err := credentialsOf(layout)
	if err == nil {
		return credentials.Config(), true, nil
	}
	if !errors.Is(err, join.ErrNotJoined) {
		return nil, false, err
	}
	if config, err = clientcmd.BuildConfigFromFlags("", layout.Kubeconfig()); err != nil {
		err = fmt.Errorf("kubeconfig %s: %w", layout.Kubeconfig(), err)
	}
	return config, false, err
}

// read reads the state from the API. It requests the checks first, which explain why other requests
// fail.
func (s *status) read(ctx context.Context, client kubernetes.Interface) error {
	// If a check fails, the response is both an error and the list of checks.
	answer, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Param("verbose", "true").Do(ctx).Raw()
	s.Failing = failingChecks(string(answer))
	if err != nil && len(s.Failing) == 0 {
		return err
	}
	s.Ready = err == nil
	// A response from the watch cache is sufficient.
	recent := metav1.ListOptions{ResourceVersion: "0"}
	nodes, err := client.CoreV1().Nodes().List(ctx, recent)
	if err != nil {
		return err
	}
	for i := range nodes.Items {
		s.Nodes.add(&nodes.Items[i])
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, recent)
	if err != nil {
		return err
	}
	for i := range pods.Items {
		s.Pods[string(pods.Items[i].Status.Phase)]++
	}
	return nil
}

// readHolds counts the objects on hold.
func (s *status) readHolds(ctx context.Context, config *rest.Config) error {
	client, err := reviewClient(config)
	if err != nil {
		return err
	}
	lint := &ownership.OwnershipLint{Spec: ownership.OwnershipLintSpec{Rules: []ownership.LintRule{ownership.RuleOnHold}}}
	if err := client.Post().Resource("ownershiplints").Body(lint).Do(ctx).Into(lint); err != nil {
		return err
	}
	s.Held = len(lint.Status.Findings)
	return nil
}

// readFirewalls reads the machine's firewall, if the user may. Only nodes whose pod network is Kindred's have a bridge.
func (s *status) readFirewalls(ctx context.Context, layout datadir.Layout) {
	names, err := containerd.NamesFor(layout.ID())
	if err != nil {
		return
	}
	if _, err := net.InterfaceByName(names.Bridge); err != nil {
		return
	}
	s.Firewalls, _ = machine.Firewalls(ctx, names)
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// failingChecks parses the verbose form of /readyz, which has a line "[-]name failed: ..." for each
// check that fails.
func failingChecks(answer string) []string {
	var failing []string
	for line := range strings.Lines(answer) {
		if check, found := strings.CutPrefix(line, "[-]"); found {
			name, _, _ := strings.Cut(strings.TrimSpace(check), " ")
			failing = append(failing, name)
		}
	}
	return failing
}

// verdict returns nil if the cluster is ready, and nothing of it is away.
func (s *status) verdict() error {
	switch {
	case s.Problem != "":
		return fmt.Errorf("the cluster does not respond: %s; see its output, or restart it", s.Problem)
	case len(s.Failing) > 0:
		return fmt.Errorf("the cluster is not ready: %s", strings.Join(s.Failing, ", "))
	case s.leaderless():
		return fmt.Errorf("no server leads the cluster at present, so that nothing is scheduled or collected; if this does not change within seconds, the logs of the servers say why")
	case !s.Ready:
		return fmt.Errorf("the cluster is not ready")
	}
	if away := s.away(); len(away) > 0 {
		return fmt.Errorf("the cluster works, but %s", strings.Join(away, "; "))
	}
	return nil
}

func (s *status) print(cmd *cobra.Command, clock clock.PassiveClock) {
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(table, name+"\t"+format+"\n", args...)
	}
	row("Data", "%s", s.DataDir)
	row("Process", "%d, kindred %s, up %s", s.PID, s.Version, duration.HumanDuration(clock.Since(s.StartedAt)))
	row("API", "%s", s.Server)
	if !s.Joined {
		row("Store", "%s", s.store())
	}
	row("Runtime", "%s", s.runtime())
	row("Health", "%s", s.health())
	for _, server := range s.Servers {
		row("Server", "%s", server.describe(clock.Now()))
	}
	row("Nodes", "%s", s.Nodes.describe())
	row("Pods", "%s", s.podCounts())
	switch {
	case s.HoldsProblem != "":
		row("On hold", "unknown: %s", s.HoldsProblem)
	case s.Held > 0:
		row("On hold", "%s; \"kindred lint -A --rule %s\" explains why and how to continue", plural(s.Held, "object"), ownership.RuleOnHold)
	}
	for _, firewall := range s.Firewalls {
		row("Firewall", "%s", firewall)
	}
	_ = table.Flush()
}

func (s *status) store() string {
	if s.EtcdMember != "" {
		return s.describeMembers()
	}
	if len(s.Etcd) == 0 {
		return "embedded etcd"
	}
	return "etcd at " + strings.Join(s.Etcd, ", ")
}

func (s *status) runtime() string {
	if s.ContainerRuntime == "" {
		return "none, simulated nodes only"
	}
	return s.ContainerRuntime
}

func (s *status) health() string {
	switch {
	case s.Problem != "":
		return "no response: " + s.Problem
	case len(s.Failing) > 0:
		return "failing: " + strings.Join(s.Failing, ", ")
	default:
		return "ok"
	}
}

// podCounts counts the pods of each phase, in the order of a pod's life.
func (s *status) podCounts() string {
	total := 0
	var counts []string
	for _, phase := range []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown} {
		if n := s.Pods[string(phase)]; n > 0 {
			total += n
			counts = append(counts, fmt.Sprintf("%d %s", n, phase))
		}
	}
	if total == 0 {
		return "none"
	}
	return fmt.Sprintf("%d (%s)", total, strings.Join(counts, ", "))
}
