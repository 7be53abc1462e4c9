// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers lists the controllers of a cluster. Each controller gets all it needs
// from a control.Env; controllers of one subject share a package. The packages below
// framework are no controllers: they hold what several controllers are built from. To add
// a controller, add its package and a line in All.
package controllers

import (
	"github.com/kindred-project/kindred/internal/controllers/attachdetach"
	"github.com/kindred-project/kindred/internal/controllers/bootstraptoken"
	"github.com/kindred-project/kindred/internal/controllers/capublisher"
	"github.com/kindred-project/kindred/internal/controllers/certificates"
	"github.com/kindred-project/kindred/internal/controllers/cronjob"
	"github.com/kindred-project/kindred/internal/controllers/daemonset"
	"github.com/kindred-project/kindred/internal/controllers/deployment"
	"github.com/kindred-project/kindred/internal/controllers/devicetaint"
	"github.com/kindred-project/kindred/internal/controllers/disruption"
	"github.com/kindred-project/kindred/internal/controllers/endpoints"
	"github.com/kindred-project/kindred/internal/controllers/endpointslice"
	"github.com/kindred-project/kindred/internal/controllers/endpointslicemirroring"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/job"
	"github.com/kindred-project/kindred/internal/controllers/loadbalancer"
	"github.com/kindred-project/kindred/internal/controllers/localpath"
	"github.com/kindred-project/kindred/internal/controllers/namespace"
	"github.com/kindred-project/kindred/internal/controllers/nodeipam"
	"github.com/kindred-project/kindred/internal/controllers/nodelifecycle"
	"github.com/kindred-project/kindred/internal/controllers/persistentvolume"
	"github.com/kindred-project/kindred/internal/controllers/podautoscaler"
	"github.com/kindred-project/kindred/internal/controllers/podgc"
	"github.com/kindred-project/kindred/internal/controllers/podgroup"
	"github.com/kindred-project/kindred/internal/controllers/policystatus"
	"github.com/kindred-project/kindred/internal/controllers/replicaset"
	"github.com/kindred-project/kindred/internal/controllers/resourceclaim"
	"github.com/kindred-project/kindred/internal/controllers/resourcequota"
	"github.com/kindred-project/kindred/internal/controllers/roleaggregation"
	"github.com/kindred-project/kindred/internal/controllers/serviceaccount"
	"github.com/kindred-project/kindred/internal/controllers/servicecidr"
	"github.com/kindred-project/kindred/internal/controllers/statefulset"
	"github.com/kindred-project/kindred/internal/controllers/storagemigration"
	"github.com/kindred-project/kindred/internal/controllers/unserved"
	"github.com/kindred-project/kindred/internal/controllers/volumeprotection"
)

// Options hold what some controllers need to know about the cluster.
type Options struct {
	// CA holds the PEM certificates by which pods verify the API server.
	CA []byte
	// Sign signs certificates for CertificateSigningRequests.
	Sign certificates.Signer
	// Token issues tokens of service accounts that are stored in Secrets.
	Token serviceaccount.IssueToken
	// TerminatedPods is the number of ended pods to keep. If it is not positive, all are kept.
	TerminatedPods int
	// LocalPath are the nodes on which volumes of the default StorageClass are provisioned.
	LocalPath localpath.Nodes
	// PodRanges are the ranges from which nodes get theirs.
	PodRanges nodeipam.Options
	// LoadBalancers configures the addresses of Services of the type LoadBalancer.
	LoadBalancers loadbalancer.Options
	// Gangs is set if PodGroups are served.
	Gangs bool
}

// All returns the controllers, in the order in which they are added.
func All(options Options) []control.Controller {
	return []control.Controller{
		{Name: namespace.Name, Add: namespace.Add},
		{Name: resourcequota.Name, Add: resourcequota.Add},
		{Name: serviceaccount.AccountsName, Add: serviceaccount.AddAccounts},
		{Name: capublisher.ConfigMapName, Add: capublisher.AddConfigMaps(options.CA)},
		{Name: replicaset.ReplicaSetName, Add: replicaset.AddReplicaSets},
		{Name: replicaset.ReplicationControllerName, Add: replicaset.AddReplicationControllers},
		{Name: deployment.Name, Add: deployment.Add},
		{Name: daemonset.Name, Source: daemonset.Source, Add: daemonset.Add},
		{Name: statefulset.Name, Add: statefulset.Add},
		{Name: job.Name, Add: job.Add},
		{Name: job.TTLName, Add: job.AddTTL},
		{Name: cronjob.Name, Add: cronjob.Add},
		{Name: disruption.Name, Source: disruption.Source, Add: disruption.Add},
		{Name: podautoscaler.Name, Needs: podautoscaler.Resource, Add: podautoscaler.Add},
		{Name: endpointslice.Name, Add: endpointslice.Add},
		{Name: endpoints.Name, Add: endpoints.Add},
		{Name: endpointslicemirroring.Name, Source: endpointslicemirroring.Source, Add: endpointslicemirroring.Add},
		{Name: servicecidr.Name, Add: servicecidr.Add},
		{Name: loadbalancer.Name, Add: loadbalancer.Add(options.LoadBalancers)},
		{Name: roleaggregation.Name, Add: roleaggregation.Add},
		{Name: certificates.Name, Add: certificates.Add(options.Sign)},
		{Name: capublisher.TrustBundleName, Add: capublisher.AddTrustBundle(options.CA)},
		{Name: certificates.PodRequestCleanerName, Add: certificates.AddPodRequestCleaner},
		{Name: policystatus.Name, Add: policystatus.Add},
		{Name: storagemigration.Name, Add: storagemigration.Add},
		{Name: serviceaccount.TokensName, Root: true, Add: serviceaccount.AddTokens(options.Token, options.CA)},
		{Name: serviceaccount.RetirerName, Add: serviceaccount.AddRetirer},
		{Name: bootstraptoken.SignerName, Add: bootstraptoken.AddSigner},
		{Name: bootstraptoken.CleanerName, Add: bootstraptoken.AddCleaner},
		{Name: nodelifecycle.Name, Add: nodelifecycle.Add},
		{Name: nodeipam.Name, Add: nodeipam.Add(options.PodRanges)},
		{Name: podgc.Name, Add: podgc.Add(options.TerminatedPods)},
		{Name: podgroup.Name, Needs: podgroup.Resource, Add: podgroup.Add},
		{Name: resourceclaim.Name, Source: resourceclaim.Source, Add: resourceclaim.Add(options.Gangs)},
		{Name: devicetaint.Name, Add: devicetaint.Add(options.Gangs)},
		{Name: persistentvolume.BinderName, Source: persistentvolume.BinderSource, Add: persistentvolume.AddBinder},
		{Name: persistentvolume.EphemeralName, Source: persistentvolume.EphemeralSource, Add: persistentvolume.AddEphemeral},
		{Name: persistentvolume.ExpanderName, Source: persistentvolume.ExpanderSource, Add: persistentvolume.AddExpander},
		{Name: attachdetach.Name, Add: attachdetach.Add},
		{Name: localpath.Name, Source: localpath.Provisioner, Add: localpath.Add(options.LocalPath)},
		{Name: volumeprotection.ClaimName, Add: volumeprotection.AddClaims},
		{Name: volumeprotection.VolumeName, Add: volumeprotection.AddVolumes},
		{Name: volumeprotection.ClassName, Add: volumeprotection.AddClasses},
		{Name: unserved.Name, Add: unserved.Add},
	}
}
