// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// statedVersions reads a patched object by the version that it states. What it
// leaves out, the library completes from the type that it is read into, and for
// upstream's that is the internal version: types of their own, without JSON names.
// Of an object without a version nothing is read then, not even its name, and a
// version without its group is nobody's. Here the internal types are those of a
// version (see generic.Group), and would be read all the same.
type statedVersions struct {
	serializer.CodecFactory
	scheme *runtime.Scheme
}

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (s statedVersions) DecoderToVersion(decoder runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return statedVersionDecoder{Decoder: s.CodecFactory.DecoderToVersion(decoder, gv), plain: decoder, scheme: s.scheme}
}

type statedVersionDecoder struct {
	runtime.Decoder
	// plain does not convert, and does not know versions.
	plain  runtime.Decoder
	scheme *runtime.Scheme
}

// Decode implements runtime.Decoder. A body that is created or put has the
// version of its URL for a default; only a patched object has none.
func (d statedVersionDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if defaults != nil || into == nil {
		return d.Decoder.Decode(data, defaults, into)
	}
	stated, err := d.stated(data, into)
	switch {
	case err != nil: // the decoder says why
	case stated.Version == "", stated.Version == runtime.APIVersionInternal:
		_, gvk, err := d.plain.Decode(data, nil, &unversioned{})
		return into, gvk, err
	case stated.Group == "" && !d.scheme.Recognizes(*stated):
		return nil, stated, runtime.NewNotRegisteredErrForKind(d.scheme.Name(), *stated)
	}
	return d.Decoder.Decode(data, nil, into)
}

// stated is what data says that it is. The kind may be left out.
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

// unversioned has no fields but those that say what an object is: to a strict
// decoder, all others are unknown.
type unversioned struct {
	runtime.TypeMeta `json:",inline"`
}

func (u *unversioned) GetObjectKind() schema.ObjectKind { return &u.TypeMeta }
func (u *unversioned) DeepCopyObject() runtime.Object   { out := *u; return &out }
