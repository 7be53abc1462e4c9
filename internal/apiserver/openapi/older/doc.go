// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package older has the OpenAPI definitions of the API versions that are off by default.
package older
