// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
)

// Encryption is what encrypts values before they reach etcd: upstream's flags
// --encryption-provider-config and --encryption-provider-config-automatic-reload.
// The zero value encrypts nothing.
type Encryption struct {
	// File is an EncryptionConfiguration; Reload follows it.
	File   string
	Reload bool
}

// Check reads the file and asks its KMS plugins, for what is wrong to be known early.
func (e Encryption) Check(ctx context.Context) error {
	if e.File == "" && e.Reload {
		return errors.New("--encryption-provider-config-automatic-reload is given, but no --encryption-provider-config to reload")
	}
	if e.File == "" {
		return nil
	}
	// What watches over KMS plugins meanwhile ends with ctx.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, err := e.load(ctx, "")
	return err
}

func (e Encryption) load(ctx context.Context, server string) (*encryptionconfig.EncryptionConfiguration, error) {
	configuration, err := encryptionconfig.LoadEncryptionConfig(ctx, e.File, e.Reload, server)
	if err != nil {
		return nil, fmt.Errorf("--encryption-provider-config %s: %w", e.File, err)
	}
	// The library lets a plugin come later. Until then nothing that it encrypts can be
	// read or written: the start would wait for that without a word.
	for _, plugins := range configuration.HealthChecks {
		if err := plugins.Check((&http.Request{}).WithContext(ctx)); err != nil {
			return nil, fmt.Errorf("--encryption-provider-config %s: a KMS plugin is not healthy, and must be before the cluster starts: %w", e.File, err)
		}
	}
	return configuration, nil
}

// Encrypt makes the resources that are opened from now on encrypt their values,
// custom resources among them. It returns health checks of KMS plugins. What it
// needs in the background ends with ctx, after an error too. The server's name
// is for metrics.
func (b *Backend) Encrypt(ctx context.Context, e Encryption, server string) ([]healthz.HealthChecker, error) {
	if e.File == "" {
		return nil, nil
	}
	b.encryption = e
	if e.Reload {
		return b.encryptByChanging(ctx, e, server)
	}
	configuration, err := e.load(ctx, server)
	if err != nil {
		return nil, err
	}
	b.transformers = encryptionconfig.StaticTransformers(configuration.Transformers)
	return configuration.HealthChecks, nil
}

// encryptByChanging follows the file: each configuration has a life of its own.
func (b *Backend) encryptByChanging(ctx context.Context, e Encryption, server string) ([]healthz.HealthChecker, error) {
	first, end := context.WithCancel(ctx)
	configuration, err := e.load(first, server)
	if err != nil {
		end()
		return nil, err
	}
	// With reloading there is one check for whatever plugins there are.
	changing := encryptionconfig.NewDynamicTransformers(configuration.Transformers, configuration.HealthChecks[0], end, configuration.KMSCloseGracePeriod)
	b.transformers = changing
	go controller.NewDynamicEncryptionConfiguration("encryption-provider-config", e.File, changing, configuration.EncryptionFileContentHash, server).Run(ctx)
	return []healthz.HealthChecker{changing}, nil
}

// plain are never encrypted, as upstream's are not: servers that share an etcd
// read them.
var plain = map[schema.GroupResource]bool{
	{Resource: "servicenodeportallocations"}: true,
	{Resource: "apiServerIPInfo"}:            true,
}

// transformer is what stands between a resource and etcd.
func (b *Backend) transformer(resource schema.GroupResource) value.Transformer {
	if b.transformers == nil || plain[resource] {
		return identity.NewEncryptCheckTransformer()
	}
	if resource == (schema.GroupResource{Group: "events.k8s.io", Resource: "events"}) {
		resource.Group = "" // both groups store the same objects
	}
	return b.transformers.TransformerForResource(resource)
}

// Readable tells whether the keys at hand are those that a resource's values were
// encrypted with. Otherwise no watch cache would ever fill, and a start would
// wait for ever without a word. Every resource is asked for when it is opened.
func (b *Backend) Readable(resource schema.GroupResource, prefix string) error {
	transformer := b.transformer(resource)
	ctx, cancel := context.WithTimeout(context.Background(), readableTimeout)
	defer cancel()
	limit := int64(1) // where nothing is to be decrypted it shall cost nothing
	if b.transformers != nil {
		limit = 100
	}
	found, err := b.client.Client.Get(ctx, path.Join("/", Prefix, prefix)+"/", clientv3.WithPrefix(), clientv3.WithLimit(limit), clientv3.WithSerializable())
	if err != nil {
		return fmt.Errorf("etcd does not answer: %w", err)
	}
	for _, kv := range found.Kvs {
		_, _, err := transformer.TransformFromStorage(ctx, kv.Value, value.DefaultContext(kv.Key))
		switch {
		case err != nil && b.transformers == nil:
			return fmt.Errorf("%s in etcd are encrypted (%s): give the keys with --encryption-provider-config", resource, kv.Key)
		case err != nil:
			return fmt.Errorf("%s in etcd cannot be decrypted with %s (%s: %w): add the key that they were encrypted with", resource, b.encryption.File, kv.Key, err)
		}
	}
	return nil
}

// readableTimeout is how long etcd, or a KMS plugin, may take to answer.
const readableTimeout = 10 * time.Second
