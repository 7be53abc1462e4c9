// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package links

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestWhole(t *testing.T) {
	failed := errors.New("failed")
	interrupted := fmt.Errorf("listing: %w", netlink.ErrDumpInterrupted)
	for name, tt := range map[string]struct {
		errs  []error // of the attempts, in order; the last one is of all further ones
		calls int
		err   error
	}{
		"at once":           {errs: []error{nil}, calls: 1},
		"interrupted twice": {errs: []error{interrupted, interrupted, nil}, calls: 3},
		"always":            {errs: []error{interrupted}, calls: attempts},
		"failed":            {errs: []error{failed}, calls: 1, err: failed},
		"failed later":      {errs: []error{interrupted, failed}, calls: 2, err: failed},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			got, err := Whole(func() ([]int, error) {
				err := tt.errs[min(calls, len(tt.errs)-1)]
				calls++
				return []int{calls}, err
			})
			if calls != tt.calls || err != tt.err {
				t.Errorf("%d calls, error %v; want %d, %v", calls, err, tt.calls, tt.err)
			}
			if !slices.Equal(got, []int{tt.calls}) {
				t.Errorf("got the list of attempt %v, want that of the last one, %d", got, tt.calls)
			}
		})
	}
}
