// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"
)

const (
	// maxNesting is how deep a body may be nested: ten times the depth of the deepest known
	// objects, schemas in CustomResourceDefinitions. The decoders' own limit is 10,000, but an
	// object close to it is stored with a few more levels, and cannot be read again.
	maxNesting = 1000
	// maxPatchWork limits the cost of decoding a JSON patch, in bytes times levels: the JSON patch
	// library stores what is below a level as text, and parses that text again at each level. The
	// limit is less than a second of work, and ten times what the largest objects need.
	maxPatchWork = 64 << 20
)

// limitNesting refuses bodies that are nested too deeply to be processed cheaply. It ignores bodies
// that are streams (exec, proxy).
func limitNesting(next http.Handler, maxBytes int64, streams request.LongRunningRequestCheck, codec runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		depth := depthOf(r.Header.Get("Content-Type"))
		info, _ := request.RequestInfoFrom(r.Context())
		if r.Body == nil || r.Body == http.NoBody || depth == nil || info != nil && streams(r, info) {
			next.ServeHTTP(w, r)
			return
		}
		// Read one byte more than allowed, so that the endpoint refuses a body that is too large.
		body, err := io.ReadAll(io.LimitReader(r.Body, maxBytes+1))
		if err == nil {
			err = checkNesting(depth(body), len(body), r.Method == http.MethodPatch)
		} else {
			err = apierrors.NewBadRequest(fmt.Sprintf("the body cannot be read: %v", err))
		}
		if err != nil {
			responsewriters.ErrorNegotiated(err, codec, schema.GroupVersion{}, w, r)
			return
		}
		r.Body = replay{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
		next.ServeHTTP(w, r)
	})
}

// replay is a body whose beginning has been read already.
type replay struct {
	io.Reader
	io.Closer
}

func checkNesting(depth, size int, patch bool) error {
	switch {
	case depth > maxNesting:
		return apierrors.NewBadRequest(fmt.Sprintf("the body is nested %d levels deep; at most %d are allowed", depth, maxNesting))
	case patch && depth*size > maxPatchWork:
		return apierrors.NewBadRequest(fmt.Sprintf("the patch is nested %d levels deep, which is too deep for one of %d bytes", depth, size))
	}
	return nil
}

// depthOf returns the function that computes the depth of a body of this content type; nil if the
// type cannot be nested or is not decoded. A body without a type is JSON.
func depthOf(contentType string) func([]byte) int {
	if contentType == "" {
		return nestingOfJSON
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil
	}
	switch mediaType {
	case runtime.ContentTypeJSON,
		string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType):
		return nestingOfJSON
	case runtime.ContentTypeYAML, string(types.ApplyYAMLPatchType):
		return nestingOfYAML
	case runtime.ContentTypeProtobuf:
		return nestingOfProtobuf
	}
	return nil
}

// nestingOfJSON returns the depth of JSON. The result for invalid JSON is undefined.
func nestingOfJSON(text []byte) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// nestingOfYAML returns the depth of YAML; 0 if the decoder refuses it, which converts it to JSON
// in the same way, with limits of its own.
func nestingOfYAML(text []byte) int {
	if json.Valid(text) { // JSON is YAML, and much faster to read
		return nestingOfJSON(text)
	}
	converted, err := yaml.YAMLToJSON(text)
	if err != nil {
		return 0
	}
	return nestingOfJSON(converted)
}

// nestingOfProtobuf returns the depth of an object in Kubernetes' protobuf envelope, up to one
// level more than allowed.
func nestingOfProtobuf(body []byte) int {
	const magic = "k8s\x00" // runtime/serializer/protobuf
	message, found := bytes.CutPrefix(body, []byte(magic))
	if !found {
		return 0
	}
	return nestingOfMessage(message, maxNesting+1)
}

// nestingOfMessage returns the depth of nested fields that may be messages. A string that parses as
// a message counts too; only a crafted one could be a thousand levels deep. Each byte is read once:
// a field is skipped at its level and read at the next.
func nestingOfMessage(message []byte, most int) (deepest int) {
	for len(message) > 0 && deepest < most {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return deepest
		}
		message = message[n:]
		if kind == protowire.BytesType {
			var value []byte
			if value, n = protowire.ConsumeBytes(message); n >= 0 {
				deepest = max(deepest, 1+nestingOfMessage(value, most-1))
			}
		} else {
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return deepest
		}
		message = message[n:]
	}
	return deepest
}
