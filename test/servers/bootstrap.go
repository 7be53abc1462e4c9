// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"net/netip"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
)

// StartAt starts the control plane on an address of this machine, as kubeadm does, so that machines can join: with an authority, bootstrap
// tokens, and ranges for the pods of nodes.
func (u UpstreamControlPlane) StartAt(ctx context.Context, dir string, address netip.Addr, pods netip.Prefix) (_ *Server, err error) {
	s := &Server{Name: "upstream"}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	certificates, err := newCertificates(filepath.Join(dir, "certificates"), "none", address)
	if err != nil {
		return nil, err
	}
	s.Kubeconfig = certificates.admin
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		return nil, err
	}
	s.connect(config)
	etcd, err := s.startEtcd(ctx, dir, u.etcd, false)
	if err != nil {
		return nil, err
	}
	flags := append(certificates.apiserverFlags(etcd, address), "--enable-bootstrap-token-auth=true")
	if err := s.start(ctx, dir, "kube-apiserver", u.apiserver, s.checkReady, flags); err != nil {
		return nil, err
	}
	port, healthz, err := localServer()
	if err != nil {
		return nil, err
	}
	flags = append(certificates.controllerManagerFlags(port, node{dir: dir}),
		"--controllers=*,bootstrap-signer-controller,token-cleaner-controller", "--allocate-node-cidrs=true", "--cluster-cidr="+pods.String(), "--service-cluster-ip-range="+serviceCIDR)
	if err := s.start(ctx, dir, "kube-controller-manager", u.controllerManager, healthz, flags); err != nil {
		return nil, err
	}
	if port, healthz, err = localServer(); err != nil {
		return nil, err
	}
	return s, s.start(ctx, dir, "kube-scheduler", u.scheduler, healthz, certificates.schedulerFlags(port))
}

// start starts a program, and waits until it is ready.
func (s *Server) start(ctx context.Context, dir, name, binary string, ready func(context.Context) error, flags []string) error {
	p, err := launch(name, filepath.Join(dir, name+".log"), nil, binary, flags...)
	if err != nil {
		return err
	}
	s.processes = append(s.processes, p)
	return p.await(ctx, ready)
}
