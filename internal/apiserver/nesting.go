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
	// maxNesting is how many levels deep a body may be: ten times what the deepest
	// known objects are, schemas in CustomResourceDefinitions. The decoders' own limit
	// is 10,000, and what comes close to it is stored with a few levels more than it
	// came with, and never read again.
	maxNesting = 1000
	// maxPatchWork is how much of a JSON patch may be read again because it is nested, in
	// bytes times levels: the library keeps what is below a level as text, and reads that
	// text at each level anew. This is less than a second, and ten times what the largest
	// objects need.
	maxPatchWork = 64 << 20
)

// limitNesting refuses bodies that are nested so deep that they would cost more than
// they are worth. Bodies that are streams (exec, proxy) are nobody's business here.
func limitNesting(next http.Handler, maxBytes int64, streams request.LongRunningRequestCheck, codec runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		depth := depthOf(r.Header.Get("Content-Type"))
		info, _ := request.RequestInfoFrom(r.Context())
		if r.Body == nil || r.Body == http.NoBody || depth == nil || info != nil && streams(r, info) {
			next.ServeHTTP(w, r)
			return
		}
		// One byte more than allowed is left for whoever refuses what is too large.
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

// replay is a body of which a part has been read.
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

// depthOf is how to tell the depth of a body of the given type; nil if it is of a type
// that cannot be nested, or that nobody here decodes. A body of no type is JSON.
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

// nestingOfJSON is how many levels deep JSON is. What is not JSON gets a number too.
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

// nestingOfYAML is how many levels deep YAML is, and 0 for what the decoder will refuse:
// it makes JSON of it in the same way, and has limits of its own for that.
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

// nestingOfProtobuf is how many levels deep an object in Kubernetes' protobuf envelope
// is, as far as it is of interest: one more than is allowed is all there is to know.
func nestingOfProtobuf(body []byte) int {
	const magic = "k8s\x00" // runtime/serializer/protobuf
	message, found := bytes.CutPrefix(body, []byte(magic))
	if !found {
		return 0
	}
	return nestingOfMessage(message, maxNesting+1)
}

// nestingOfMessage counts what could be messages within messages. A text that reads as a
// message counts as well; it would have to be made for that to be a thousand deep. Each
// byte is looked at once: a field is skipped at its level and read at the next.
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
