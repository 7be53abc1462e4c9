// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"os"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/storage"
	"github.com/kindred-project/kindred/internal/storage/check"
)

// adminUser is the user of the administrator's kubeconfig.
var adminUser = &user.DefaultInfo{Name: "kubernetes-admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}

// contextName is the name of the cluster in kubeconfigs.
const contextName = "kindred"

// writeAdminKubeconfig writes the administrator's kubeconfig, again whenever its certificate is
// renewed.
func (c *Cluster) writeAdminKubeconfig() error {
	admin, err := c.keys.Keep(c.keys.Admin, c.writeKubeconfig)
	if err != nil {
		return err
	}
	return c.writeKubeconfig(admin.Pair())
}

func (c *Cluster) writeKubeconfig(admin *pki.Pair) error {
	return pki.Kubeconfig{
		Name: contextName, Server: c.Server(), CA: c.keys.Cluster.CertPEM, User: adminUser.Name, Credentials: admin,
	}.Write(c.config.Dir.Kubeconfig())
}

// renewalInterval is the interval at which certificates in use are checked. They are renewed when a third of
// their validity is left, which is months, or when "kindred cert rotate" has discarded them.
const renewalInterval = time.Minute

// renewCertificates renews the certificates in use before they expire.
func renewCertificates(ctx context.Context, keys *pki.PKI, c clock.WithTicker) error {
	ticker := c.NewTicker(renewalInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C():
			if err := keys.Renew(); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot renew certificates; the current ones stay in use")
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// writeInstance writes what runs here, for other commands.
func (c *Cluster) writeInstance() error {
	instance := datadir.Instance{
		PID: os.Getpid(), Version: c.config.Version, StartedAt: c.config.Clock.Now(),
		Server: c.Server(), Etcd: c.config.Etcd.Servers, SimulatedNodes: c.config.SimulatedNodes,
	}
	if c.machine != nil {
		instance.NodeName, instance.ContainerRuntime = c.config.NodeName, c.machine.Endpoint()
		instance.KubeletDir = c.config.KubeletDir
	}
	if c.config.EtcdMember {
		instance.EtcdMember = storage.ClientURL(c.config.BindAddress)
	}
	return c.config.Dir.WriteInstance(instance)
}

// checkStoreExists returns an error if a cluster with an embedded store was ready in a directory
// and the store is missing. Starting with an empty store would hide the loss.
func checkStoreExists(dir datadir.Layout) error {
	exists, err := check.Exists(dir.Etcd())
	if exists || err != nil {
		return err
	}
	instance, ran, err := dir.ReadInstance()
	if err != nil || !ran || len(instance.Etcd) > 0 || instance.Server == "" {
		return err
	}
	return &check.MissingError{Dir: dir.Etcd(), Seen: instance.StartedAt}
}
