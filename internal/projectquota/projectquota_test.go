// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package projectquota

import "testing"

// TestIsOwn: the limit of a project is changed only if it was created for the directory.
func TestIsOwn(t *testing.T) {
	const path = "/data/volumes/pvc-1"
	own := firstID(path)
	of := func(id uint32) fsxattr { return fsxattr{ID: id, Flags: inherit} }
	for name, test := range map[string]struct {
		dir, parent fsxattr
		want        bool
	}{
		"no project":               {fsxattr{}, fsxattr{}, false},
		"project 0, inherited":     {of(0), of(0), false},
		"own":                      {of(own), fsxattr{}, true},
		"own, as others were used": {of(own + candidates - 1), fsxattr{}, true},
		"own below a project":      {of(own), of(42), true},
		"of the parent":            {of(42), of(42), false},
		"of the parent, by chance what create chooses": {of(own), of(own), false},
		"of the parent as it was":                      {of(42), fsxattr{}, false},
		"of another directory, by a restoration":       {of(firstID("/data/volumes/pvc-2")), fsxattr{}, false},
		"below what create chooses":                    {of(own - 1), fsxattr{}, false},
		"above what create chooses":                    {of(own + candidates), fsxattr{}, false},
		"not inherited by its files":                   {fsxattr{ID: own}, fsxattr{}, false},
	} {
		if got := isOwn(path, test.dir, test.parent); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestIsUsed: each limit is one that an administrator may have set.
func TestIsUsed(t *testing.T) {
	for name, quota := range map[string]dqblk{
		"space": {Space: 1}, "files": {Files: 1}, "limit": {HardBlocks: 1}, "soft limit": {SoftBlocks: 1},
		"limit of files": {HardFiles: 1}, "soft limit of files": {SoftFiles: 1},
	} {
		if !quota.isUsed() {
			t.Errorf("%s: not used", name)
		}
	}
	if (dqblk{BlockTime: 1, Valid: 1}).isUsed() {
		t.Error("used without files or limits")
	}
}

// TestNoLimit: a file system without project quotas has no projects.
func TestNoLimit(t *testing.T) {
	for _, dir := range []string{t.TempDir(), "/proc", "/dev"} {
		if p, err := Open(dir); p != nil || err != nil {
			t.Errorf("%s: project %v, %v", dir, p, err)
		}
	}
}
