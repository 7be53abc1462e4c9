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

// Encryption configures the encryption of values before they reach etcd, as upstream's flags
// --encryption-provider-config and --encryption-provider-config-automatic-reload do. The zero
// value encrypts nothing.
type Encryption struct {
	// File has an EncryptionConfiguration. Reload applies changes of it.
	File   string
	Reload bool
}

// Check reads the file and checks its KMS plugins, so that errors appear early.
func (e Encryption) Check(ctx context.Context) error {
	if e.File == "" && e.Reload {
		return errors.New("--encryption-provider-config-automatic-reload is given, but no --encryption-provider-config to reload")
	}
	if e.File == "" {
		return nil
	}
	// The health checks of KMS plugins end with ctx.
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
	// k8s.io/apiserver lets a plugin become healthy later. Until then its resources can be
	// neither read nor written, and the start would wait for them silently.
	for _, plugins := range configuration.HealthChecks {
		if err := plugins.Check((&http.Request{}).WithContext(ctx)); err != nil {
			return nil, fmt.Errorf("--encryption-provider-config %s: a KMS plugin is not healthy, and must be before the cluster starts: %w", e.File, err)
		}
	}
	return configuration, nil
}

// Encrypt makes resources that are opened from now on, custom resources included, encrypt their
// values. It returns the health checks of KMS plugins. Its background work ends with ctx, also
// after an error. The server's name is for metrics.
func (b *Backend) Encrypt(ctx context.Context, e Encryption, server string) ([]healthz.HealthChecker, error) {
	if e.File == "" {
		return nil, nil
	}
	b.encryption = e
	if e.Reload {
		return b.encryptReloading(ctx, e, server)
	}
	configuration, err := e.load(ctx, server)
	if err != nil {
		return nil, err
	}
	b.transformers = encryptionconfig.StaticTransformers(configuration.Transformers)
	return configuration.HealthChecks, nil
}

// encryptReloading follows the file. Each configuration has its own context.
func (b *Backend) encryptReloading(ctx context.Context, e Encryption, server string) ([]healthz.HealthChecker, error) {
	first, end := context.WithCancel(ctx)
	configuration, err := e.load(first, server)
	if err != nil {
		end()
		return nil, err
	}
	// With reloading there is one health check for all plugins.
	changing := encryptionconfig.NewDynamicTransformers(configuration.Transformers, configuration.HealthChecks[0], end, configuration.KMSCloseGracePeriod)
	b.transformers = changing
	go controller.NewDynamicEncryptionConfiguration("encryption-provider-config", e.File, changing, configuration.EncryptionFileContentHash, server).Run(ctx)
	return []healthz.HealthChecker{changing}, nil
}

// unencrypted are the resources that are never encrypted, as upstream: servers that share an
// etcd read them.
var unencrypted = map[schema.GroupResource]bool{
	{Resource: "servicenodeportallocations"}: true,
	{Resource: "apiServerIPInfo"}:            true,
}

// transformer returns what encrypts and decrypts the values of a resource.
func (b *Backend) transformer(resource schema.GroupResource) value.Transformer {
	if b.transformers == nil || unencrypted[resource] {
		return identity.NewEncryptCheckTransformer()
	}
	if resource == (schema.GroupResource{Group: "events.k8s.io", Resource: "events"}) {
		resource.Group = "" // both groups have the same objects
	}
	return b.transformers.TransformerForResource(resource)
}

// Readable returns an error if a resource's values were encrypted with keys that are not
// configured. Without this check, made when a resource is opened, its watch cache would never
// fill and the start would wait for it silently.
func (b *Backend) Readable(resource schema.GroupResource, prefix string) error {
	transformer := b.transformer(resource)
	ctx, cancel := context.WithTimeout(context.Background(), readableTimeout)
	defer cancel()
	limit := int64(1) // cheap where nothing is encrypted
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

// readableTimeout is the time that etcd, or a KMS plugin, may take to answer.
const readableTimeout = 10 * time.Second
