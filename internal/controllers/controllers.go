// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers lists the controllers of a cluster. Each lives in a
// package of its own and knows only what package control hands it; to add one,
// add its package and a line here.
package controllers

import (
	"github.com/kindred-project/kindred/internal/controllers/accounttoken"
	"github.com/kindred-project/kindred/internal/controllers/bootstraptoken"
	"github.com/kindred-project/kindred/internal/controllers/certificates"
	"github.com/kindred-project/kindred/internal/controllers/control"
	"github.com/kindred-project/kindred/internal/controllers/daemonset"
	"github.com/kindred-project/kindred/internal/controllers/deployment"
	"github.com/kindred-project/kindred/internal/controllers/endpoints"
	"github.com/kindred-project/kindred/internal/controllers/endpointslice"
	"github.com/kindred-project/kindred/internal/controllers/job"
	"github.com/kindred-project/kindred/internal/controllers/namespace"
	"github.com/kindred-project/kindred/internal/controllers/nodelifecycle"
	"github.com/kindred-project/kindred/internal/controllers/podcertificates"
	"github.com/kindred-project/kindred/internal/controllers/podgc"
	"github.com/kindred-project/kindred/internal/controllers/policystatus"
	"github.com/kindred-project/kindred/internal/controllers/pvcprotection"
	"github.com/kindred-project/kindred/internal/controllers/pvprotection"
	"github.com/kindred-project/kindred/internal/controllers/replicas"
	"github.com/kindred-project/kindred/internal/controllers/resourcequota"
	"github.com/kindred-project/kindred/internal/controllers/roleaggregation"
	"github.com/kindred-project/kindred/internal/controllers/rootca"
	"github.com/kindred-project/kindred/internal/controllers/serviceaccount"
	"github.com/kindred-project/kindred/internal/controllers/servicecidr"
	"github.com/kindred-project/kindred/internal/controllers/storagemigration"
	"github.com/kindred-project/kindred/internal/controllers/trustbundle"
	"github.com/kindred-project/kindred/internal/controllers/vacprotection"
)

// Options are what some controllers need to know of the cluster.
type Options struct {
	// CA is the bundle of PEM certificates by which pods verify the API server.
	CA []byte
	// Sign is the authority that answers requests for certificates.
	Sign certificates.Signer
	// Token issues the tokens of service accounts that are kept in Secrets.
	Token accounttoken.Issue
}

// All returns the controllers, in the order in which they are added.
func All(options Options) []control.Controller {
	return []control.Controller{
		{Name: namespace.Name, Add: namespace.Add},
		{Name: resourcequota.Name, Add: resourcequota.Add},
		{Name: serviceaccount.Name, Add: serviceaccount.Add},
		{Name: rootca.Name, Add: rootca.Add(options.CA)},
		{Name: replicas.ReplicaSetName, Add: replicas.AddReplicaSets},
		{Name: replicas.ReplicationControllerName, Add: replicas.AddReplicationControllers},
		{Name: deployment.Name, Add: deployment.Add},
		{Name: daemonset.Name, Source: daemonset.Source, Add: daemonset.Add},
		{Name: job.Name, Add: job.Add},
		{Name: job.TTLName, Add: job.AddTTL},
		{Name: endpointslice.Name, Add: endpointslice.Add},
		{Name: endpoints.Name, Add: endpoints.Add},
		{Name: servicecidr.Name, Add: servicecidr.Add},
		{Name: roleaggregation.Name, Add: roleaggregation.Add},
		{Name: certificates.Name, Add: certificates.Add(options.Sign)},
		{Name: trustbundle.Name, Add: trustbundle.Add(options.CA)},
		{Name: podcertificates.Name, Add: podcertificates.Add},
		{Name: policystatus.Name, Add: policystatus.Add},
		{Name: storagemigration.Name, Add: storagemigration.Add},
		{Name: accounttoken.FillerName, Root: true, Add: accounttoken.AddFiller(options.Token, options.CA)},
		{Name: accounttoken.RetirerName, Add: accounttoken.AddRetirer},
		{Name: bootstraptoken.SignerName, Add: bootstraptoken.AddSigner},
		{Name: bootstraptoken.CleanerName, Add: bootstraptoken.AddCleaner},
		{Name: nodelifecycle.Name, Add: nodelifecycle.Add},
		{Name: podgc.Name, Add: podgc.Add},
		{Name: pvcprotection.Name, Add: pvcprotection.Add},
		{Name: pvprotection.Name, Add: pvprotection.Add},
		{Name: vacprotection.Name, Add: vacprotection.Add},
	}
}
