// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// objectPrefix is the root of the keys of objects.
const objectPrefix = "/registry/"

var (
	// encrypted is the prefix of values that k8s.io/apiserver has encrypted.
	encrypted = []byte("k8s:enc:")
	// protobuf is the prefix of objects in protobuf.
	protobuf = []byte("k8s\x00")
)

// decoder decodes the built-in kinds, in any version that may be stored.
var decoder = sync.OnceValues(func() (runtime.Decoder, error) {
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), apiextensionsv1.AddToScheme(known), apiregistrationv1.AddToScheme(known)); err != nil {
		return nil, err
	}
	return serializer.NewCodecFactory(known).UniversalDeserializer(), nil
})

// errEncrypted is not damage: the object cannot be checked without the key.
var errEncrypted = errors.New("encrypted")

// decodable returns an error if the object at a key cannot be decoded.
func decodable(key string, value []byte) (err error) {
	defer func() {
		// A decoder that panics could not serve the object either.
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	if bytes.HasPrefix(value, encrypted) {
		return errEncrypted
	}
	if !bytes.HasPrefix(value, protobuf) {
		if !json.Valid(value) {
			return errors.New("it is neither protobuf nor JSON")
		}
	}
	d, err := decoder()
	if err != nil {
		return err
	}
	object, _, err := d.Decode(value, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		return checkCustom(key, value)
	}
	if err != nil {
		return err
	}
	return checkName(key, object)
}

// checkCustom checks an object of a kind that is not built in.
func checkCustom(key string, value []byte) error {
	if bytes.HasPrefix(value, protobuf) {
		return nil // its envelope was decoded
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(value); err != nil {
		return err
	}
	return checkName(key, object)
}

// checkName checks that an object has the name in its key. Some objects have no name.
func checkName(key string, object runtime.Object) error {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil //nolint:nilerr // not an object with a name
	}
	if name := accessor.GetName(); name != "" && name != path.Base(key) {
		return fmt.Errorf("it says that its name is %q", name)
	}
	return nil
}

// isObject reports whether a key is that of an API object.
func isObject(key string) bool { return strings.HasPrefix(key, objectPrefix) }
