// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 Endpoints is the type in which upstream stores these.

package apiserver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// peers are the API servers that share a store. Each renews a key with its address, which expires
// by the store's clock when the server is gone. Keys and values are those of upstream's lease
// reconciler, so that Kindred's and upstream's servers see each other.
type peers struct {
	storage apistorage.Interface
}

const (
	peerPrefix = "/masterleases"
	// peerTTL is after how many seconds the key of a server expires that does not renew it. Upstream takes 15 seconds.
	peerTTL uint64 = 6
)

var peerResource = schema.GroupResource{Resource: "apiServerIPInfo"}

func openPeers(options generic.RESTOptionsGetter) (*peers, error) {
	where, err := options.GetRESTOptions(peerResource, &corev1.Endpoints{})
	if err != nil {
		return nil, err
	}
	store, _, err := where.Decorator(where.StorageConfig, peerPrefix, nil,
		func() runtime.Object { return &corev1.Endpoints{} }, func() runtime.Object { return &corev1.EndpointsList{} }, nil, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("storage of the API servers' addresses: %w", err)
	}
	return &peers{store}, nil
}

func peerKey(address string) string { return peerPrefix + "/" + address }

// announce renews the key of an address.
func (p *peers) announce(ctx context.Context, address string) error {
	return p.storage.GuaranteedUpdate(ctx, peerKey(address), &corev1.Endpoints{}, true, nil,
		func(object runtime.Object, _ apistorage.ResponseMeta) (runtime.Object, *uint64, error) {
			peer := object.(*corev1.Endpoints)
			peer.Subsets = []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: address}}}}
			peer.Generation++ // an unchanged object would not be written, and its lease not renewed
			ttl := peerTTL
			return peer, &ttl, nil
		}, nil)
}

func (p *peers) list(ctx context.Context) ([]string, error) {
	all := &corev1.EndpointsList{}
	err := p.storage.GetList(ctx, peerPrefix, apistorage.ListOptions{Predicate: apistorage.Everything, Recursive: true}, all)
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, peer := range all.Items {
		for _, subset := range peer.Subsets {
			for _, address := range subset.Addresses {
				addresses = append(addresses, address.IP)
			}
		}
	}
	return addresses, nil
}

func (p *peers) withdraw(ctx context.Context, address string) error {
	err := p.storage.Delete(ctx, peerKey(address), &corev1.Endpoints{}, nil, rest.ValidateAllObjectFunc, nil, apistorage.DeleteOptions{})
	if apistorage.IsNotFound(err) {
		return nil
	}
	return err
}
