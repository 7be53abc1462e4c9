// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// statedVersions decodes a patched object by the apiVersion that it states. The decoder completes a
// missing apiVersion from the type that it decodes into. Upstream, that is the internal version,
// whose types have no JSON names: of an object without apiVersion nothing is decoded, not even its
// name, and a version without group is unknown. Here the internal types are versioned types (see
// generic.Group), which would be decoded.
type statedVersions struct {
	runtime.NegotiatedSerializer
	scheme *runtime.Scheme
}

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (s statedVersions) DecoderToVersion(decoder runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return statedVersionDecoder{Decoder: s.NegotiatedSerializer.DecoderToVersion(decoder, gv), plain: decoder, scheme: s.scheme}
}

type statedVersionDecoder struct {
	runtime.Decoder
	// plain neither converts nor checks versions.
	plain  runtime.Decoder
	scheme *runtime.Scheme
}

// Decode implements runtime.Decoder. The default version of a created or updated object is that of
// the URL; only a patched object has no default.
func (d statedVersionDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if defaults != nil || into == nil {
		return d.Decoder.Decode(data, defaults, into)
	}
	stated, err := d.stated(data, into)
	switch {
	case err != nil: // the decoder reports it
	case stated.Version == "", stated.Version == runtime.APIVersionInternal:
		_, gvk, err := d.plain.Decode(data, nil, &unversioned{})
		return into, gvk, err
	case stated.Group == "" && !d.scheme.Recognizes(*stated):
		return nil, stated, runtime.NewNotRegisteredErrForKind(d.scheme.Name(), *stated)
	}
	return d.Decoder.Decode(data, nil, into)
}

// stated returns the group, version and kind in data. The kind may be missing.
func (d statedVersionDecoder) stated(data []byte, into runtime.Object) (*schema.GroupVersionKind, error) {
	stated, err := json.DefaultMetaFactory.Interpret(data)
	if err != nil || stated.Kind != "" {
		return stated, err
	}
	kinds, _, err := d.scheme.ObjectKinds(into)
	if err == nil {
		stated.Kind = kinds[0].Kind
	}
	return stated, err
}

// unversioned has only apiVersion and kind: to a strict decoder, all other fields are unknown.
type unversioned struct {
	runtime.TypeMeta `json:",inline"`
}

func (u *unversioned) GetObjectKind() schema.ObjectKind { return &u.TypeMeta }
func (u *unversioned) DeepCopyObject() runtime.Object   { out := *u; return &out }
