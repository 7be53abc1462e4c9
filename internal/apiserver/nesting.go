// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// maxPatchWork is how much of a JSON patch may be read again because it is nested, in
// bytes times levels: the library keeps what is below a level as text, and reads that
// text at each level anew. A few kilobytes, nested ten thousand times, would keep a core
// busy for half a minute. This is less than a second, and ten times what the largest
// objects need.
const maxPatchWork = 64 << 20

// limitNesting refuses patches that would cost more than they are worth. Every other body
// is decoded in one go, by decoders that have limits of their own.
func limitNesting(next http.Handler, maxBytes int64, codec runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPatch || !isJSONPatch(r.Header.Get("Content-Type")) {
			next.ServeHTTP(w, r)
			return
		}
		// One byte more than allowed is left for whoever refuses what is too large.
		body, err := io.ReadAll(io.LimitReader(r.Body, maxBytes+1))
		if err == nil {
			err = checkNesting(body)
		} else {
			err = apierrors.NewBadRequest(fmt.Sprintf("the patch cannot be read: %v", err))
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

func isJSONPatch(contentType string) bool {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	switch types.PatchType(mediaType) {
	case types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType:
		return true
	}
	return false
}

func checkNesting(body []byte) error {
	if depth := nesting(body); int64(depth)*int64(len(body)) > maxPatchWork {
		return apierrors.NewBadRequest(fmt.Sprintf("the patch is nested %d levels deep, which is too deep for one of %d bytes", depth, len(body)))
	}
	return nil
}

// nesting is how many levels deep JSON is. What is not JSON gets a number too.
func nesting(json []byte) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(json); i++ {
		switch c := json[i]; {
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
