// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// splitObjects parses arguments as kubectl does, TYPE/NAME... or TYPE NAME..., into pairs of type
// and name.
func splitObjects(args []string) ([][2]string, error) {
	var objects [][2]string
	if !strings.Contains(args[0], "/") {
		if len(args) == 1 {
			return nil, usagef("%q names no object: use TYPE/NAME, or TYPE NAME", args[0])
		}
		for _, name := range args[1:] {
			if name == "" || strings.Contains(name, "/") {
				return nil, usagef("%q after a type is not a name: give either TYPE NAME... or TYPE/NAME...", name)
			}
			objects = append(objects, [2]string{args[0], name})
		}
		return objects, nil
	}
	for _, arg := range args {
		kind, name, found := strings.Cut(arg, "/")
		if !found || kind == "" || name == "" || strings.Contains(name, "/") {
			return nil, usagef("%q is not TYPE/NAME", arg)
		}
		objects = append(objects, [2]string{kind, name})
	}
	return objects, nil
}

// unknownTypeError names a type that the cluster does not serve.
type unknownTypeError string

func (e unknownTypeError) Error() string {
	return fmt.Sprintf("the cluster has no resource type %q", string(e))
}

// mappingOf finds a type by any of its names, including type.version.group. Without a version it
// returns the preferred version of the group.
func mappingOf(mapper meta.RESTMapper, text string) (*meta.RESTMapping, error) {
	full, resource := schema.ParseResourceArg(text)
	if full != nil {
		if kind, err := mapper.KindFor(*full); err == nil {
			return mapper.RESTMapping(kind.GroupKind(), kind.Version)
		}
	}
	kind, err := mapper.KindFor(resource.WithVersion(""))
	if meta.IsNoMatchError(err) {
		// kubectl accepts the name of a kind as well.
		if mapping, err := mapper.RESTMapping(schema.ParseGroupKind(text)); err == nil {
			return mapping, nil
		}
		return nil, unknownTypeError(text)
	}
	if err != nil {
		return nil, err
	}
	return mapper.RESTMapping(kind.GroupKind(), kind.Version)
}
