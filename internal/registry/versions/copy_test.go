// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

type (
	oldMode  string
	oldChild struct{ Name string }
	older    struct {
		Mode     oldMode
		Count    *int64
		Size     int32
		Child    *oldChild
		Children []oldChild
		Shared   map[string]string
		Odd      string
		Gone     string
	}
	newMode  string
	newChild struct{ Name, More string }
	newer    struct {
		Mode     newMode
		Count    int64
		Size     *int32
		Child    *newChild
		Children []newChild
		Shared   map[string]string
		Odd      int
		Added    string
	}
)

func TestCopy(t *testing.T) {
	shared := map[string]string{"a": "b"}
	for name, test := range map[string]struct{ from, want any }{
		"to the newer": {
			&older{Mode: "m", Count: new(int64(3)), Size: 4, Child: &oldChild{"x"}, Children: []oldChild{{"y"}, {"z"}}, Shared: shared, Odd: "1", Gone: "g"},
			&newer{Mode: "m", Count: 3, Size: new(int32(4)), Child: &newChild{Name: "x"}, Children: []newChild{{Name: "y"}, {Name: "z"}}, Shared: shared},
		},
		"to the older": {
			&newer{Mode: "m", Count: 3, Size: new(int32(4)), Child: &newChild{Name: "x", More: "lost"}, Children: []newChild{}, Added: "a"},
			&older{Mode: "m", Count: new(int64(3)), Size: 4, Child: &oldChild{"x"}, Children: []oldChild{}},
		},
		"nothing": {&newer{}, &older{Count: new(int64(0))}},
	} {
		var got any = &older{}
		if _, isOlder := test.from.(*older); isOlder {
			got = &newer{}
		}
		if Copy(test.from, got); !cmp.Equal(test.want, got) {
			t.Errorf("%s:\n%s", name, cmp.Diff(test.want, got))
		}
	}
	// Values that the origin does not have are unset.
	to := &newer{Count: 1, Size: new(int32(1)), Child: &newChild{}, Children: []newChild{{}}, Added: "kept"}
	Copy(&older{}, to)
	if diff := cmp.Diff(&newer{Size: new(int32(0)), Added: "kept"}, to); diff != "" {
		t.Error(diff)
	}
}
