// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import "context"

type gangsKey struct{}

// WithGangs returns the context of a request to a server that serves PodGroups.
func WithGangs(ctx context.Context) context.Context {
	return context.WithValue(ctx, gangsKey{}, true)
}

// Gangs reports whether the server of a request serves PodGroups. Only then pods can be in one.
func Gangs(ctx context.Context) bool {
	on, _ := ctx.Value(gangsKey{}).(bool)
	return on
}
