// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"maps"
	"sync"
	"time"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/utils/clock"
)

// keepFor is how long definitions are kept: through a typical start, but not until the process releases the memory that only the
// start needed (cli/memory.go).
const keepFor = 5 * time.Second

// kept are the definitions of types: 5 MB, which take 10 ms to make.
type kept struct {
	get   common.GetOpenAPIDefinitions
	clock clock.Clock

	mu   sync.Mutex
	made map[string]common.OpenAPIDefinition
}

// Kept returns a function that makes definitions when they are requested, and keeps them for keepFor. All callers must have the same references.
// Each gets definitions of its own: a builder of k8s.io/kube-openapi deletes an extension from them, while others, and the encoders
// of finished documents, read theirs.
func Kept(get common.GetOpenAPIDefinitions, c clock.Clock) common.GetOpenAPIDefinitions {
	k := &kept{get: get, clock: c}
	return func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		return apart(k.definitions(ref))
	}
}

func (k *kept) definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.made == nil {
		k.made = k.get(ref)
		go k.forget(k.clock.After(keepFor))
	}
	return k.made
}

func (k *kept) forget(at <-chan time.Time) {
	<-at
	k.mu.Lock()
	defer k.mu.Unlock()
	k.made = nil
}

func apart(shared map[string]common.OpenAPIDefinition) map[string]common.OpenAPIDefinition {
	own := make(map[string]common.OpenAPIDefinition, len(shared))
	for name, definition := range shared {
		definition.Schema.Extensions = maps.Clone(definition.Schema.Extensions)
		own[name] = definition
	}
	return own
}
