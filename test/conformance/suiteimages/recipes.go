// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package suiteimages builds every image that upstream's conformance specs name, offline: from
// programs of published modules, Debian's packages and a few files of this repository.
//
// Images are data: a recipe lists layers, and a layer lists its content. Layers and archives are
// cached under a digest of all their inputs, so that a second run only checks a few files.
//
// Some images are stand-ins: they do what the specs need of upstream's image, with other content.
// Their recipes say so, and so does the table in ../README.md.
package suiteimages

import (
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kindred-project/kindred/test/images"
)

// Registry is upstream's registry of all these images.
const Registry = "registry.k8s.io"

const suite = Registry + "/e2e-test-images/"

// Packages of the programs that are built from published modules, and a directory of the suite.
const (
	agnhostProgram      = "k8s.io/kubernetes/test/images/agnhost"
	devicePluginProgram = "k8s.io/kubernetes/test/images/sample-device-plugin"
	upstreamImages      = "test/images/"
)

// recipe is how an image is made.
type recipe struct {
	// Name is the reference that upstream's test/utils/image/manifest.go resolves.
	Name string
	// OnBusybox puts the layers on the image of the machine's busybox.
	OnBusybox bool
	Layers    []layer
	Config    v1.Config
}

// layer is a part of an image. Images share equal layers.
type layer struct {
	Name    string
	Content []source
}

// debian is the small system below agnhost and below the image that looks up names; upstream's
// agnhost is on Alpine. The packages are not configured, so the layer has what their maintainer
// scripts would do and the specs need.
var debian = layer{"debian", []source{
	packages{Names: "base-files bash bind9-dnsutils coreutils curl findutils grep hostname iperf iproute2 libc-bin mawk netbase netcat-openbsd sed socat tar wget"},
	// As upstream's shell, bash keeps environment variables whose names are not identifiers
	// (data-1); dash and Debian's busybox drop them.
	link{"bin/sh", "bash"},
	link{"bin/nc", "nc.openbsd"},
	link{"usr/bin/awk", "mawk"},
	text{"etc/passwd", "root:x:0:0:root:/root:/bin/sh\n" +
		"daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n" +
		"www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n" +
		"user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n"},
	text{"etc/group", "root:x:0:\ndaemon:x:1:\nwww-data:x:33:\nnogroup:x:65534:\n" +
		"user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"},
	text{"etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n"},
}}

// compiledBusybox has nmeter, with which specs print milliseconds, and which Debian's busybox lacks. Upstream's agnhost has it
// from Alpine.
var compiledBusybox = layer{"busybox", []source{
	busybox{"bin/busybox"},
	link{"bin/nmeter", "busybox"},
}}

var agnhost = layer{"agnhost", []source{
	program{"agnhost", agnhostProgram, 0o755},
	link{"agnhost-2", "agnhost"},
	// The StatefulSet specs' readiness probe reads these over HTTPS.
	upstream{"localhost.crt", upstreamImages + "agnhost/porter/localhost.crt"},
	upstream{"localhost.key", upstreamImages + "agnhost/porter/localhost.key"},
	dir{"uploads", 0o755},
	// What fake-registry-server serves as pause:testing.
	served{"var/registry/pause", "testing", pauseLayer, pauseConfig},
}}

// pauseLayer is a stand-in: the program of Kindred's own sandboxes, which waits and reaps as upstream's does.
var (
	pauseLayer  = layer{"pause", []source{pauseProgram{"pause"}}}
	pauseConfig = v1.Config{User: "65535:65535", Entrypoint: []string{"/pause"}, Env: []string{images.SystemPath}, Labels: versioned("3.10.2")}
)

func agnhostConfig(version string, cmd ...string) v1.Config {
	return v1.Config{
		Entrypoint: []string{"/agnhost"}, Cmd: cmd, Env: []string{images.SystemPath}, Labels: versioned(version),
		ExposedPorts: map[string]struct{}{"80/tcp": {}, "8080/tcp": {}, "8081/tcp": {}, "9376/tcp": {}, "5000/tcp": {}},
	}
}

// versioned labels an image as in annotations.md of the OCI image-spec. The label also gives two
// versions with equal content two digests.
func versioned(version string) map[string]string {
	return map[string]string{"org.opencontainers.image.version": version}
}

var recipes = []recipe{
	{Name: suite + "agnhost:2.66.1", Layers: []layer{debian, compiledBusybox, agnhost}, Config: agnhostConfig("2.66.1", "pause")},
	// A stand-in: the program of 2.66.1 under the name of the version before. The specs only need
	// two different images.
	{Name: suite + "agnhost:2.55", Layers: []layer{debian, compiledBusybox, agnhost}, Config: agnhostConfig("2.55", "pause")},
	// A stand-in: the version whose source Debian has.
	{
		Name: suite + "busybox:1.37.0-2", OnBusybox: true,
		Layers: []layer{compiledBusybox},
		Config: v1.Config{Cmd: []string{"sh"}, Env: []string{images.SystemPath}, Labels: versioned("1.37.0-2")},
	},
	{Name: Registry + "/pause:3.10.2", Layers: []layer{pauseLayer}, Config: pauseConfig},
	// A stand-in: agnhost's web server. The specs need a container that keeps running and answers
	// on port 80; of node agents also one whose process is called nginx, with its ID in a file.
	{
		Name: suite + "nginx:1.27.0-2",
		Layers: []layer{debian, {"nginx", []source{
			program{"usr/sbin/nginx", agnhostProgram, 0o755},
			dir{"var/run", 0o755},
			text{"index.html", "<!DOCTYPE html>\n<title>Stand-in for nginx</title>\n"},
		}}},
		Config: v1.Config{
			Entrypoint: []string{"/bin/sh", "-c", `echo $$ > /var/run/nginx.pid; exec nginx "$0" "$@"`}, Cmd: []string{"test-webserver"},
			Env: []string{images.SystemPath}, ExposedPorts: map[string]struct{}{"80/tcp": {}}, Labels: versioned("1.27.0-2"),
		},
	},
	{
		Name:   suite + "sample-device-plugin:1.8.0",
		Layers: []layer{{"sample-device-plugin", []source{program{"sampledeviceplugin", devicePluginProgram, 0o755}, dir{"tmp", 0o1777}}}},
		Config: v1.Config{Entrypoint: []string{"/sampledeviceplugin", "-alsologtostderr"}, Env: []string{images.SystemPath}, Labels: versioned("1.8.0")},
	},
	{
		Name: suite + "glibc-dns-testing:2.1.1", Layers: []layer{debian},
		Config: v1.Config{Cmd: []string{"bash"}, Env: []string{images.SystemPath}, Labels: versioned("2.1.1")},
	},
	{
		Name: suite + "nautilus:1.8",
		Layers: []layer{debian, agnhost, {"nautilus", []source{
			upstream{"nautilus.jpg", upstreamImages + "nautilus/html/nautilus.jpg"},
			upstream{"data.json", upstreamImages + "nautilus/html/data.json"},
		}}},
		Config: agnhostConfig("1.8", "test-webserver"),
	},
	{
		Name: suite + "kitten:1.8",
		Layers: []layer{debian, agnhost, {"kitten", []source{
			upstream{"kitten.jpg", upstreamImages + "kitten/html/kitten.jpg"},
			upstream{"data.json", upstreamImages + "kitten/html/data.json"},
			// A stand-in in this file: the spec of image volumes recognizes upstream's image by the
			// name of the operating system.
			text{"etc/os-release", "NAME=\"Alpine Linux\"\nID=alpine\nVERSION_ID=3.22\nPRETTY_NAME=\"Alpine Linux v3.22 (a stand-in on Debian)\"\n"},
		}}},
		Config: agnhostConfig("1.8", "test-webserver"),
	},
	{
		Name: suite + "nonewprivs:1.4",
		Layers: []layer{{"nonewprivs", []source{
			program{"usr/local/bin/nnp", "k8s.io/kubernetes/test/images/nonewprivs", 0o4755},
		}}},
		Config: v1.Config{Cmd: []string{"nnp"}, Env: []string{images.SystemPath}, Labels: versioned("1.4")},
	},
	{
		Name: suite + "nonroot:1.5", OnBusybox: true,
		Config: v1.Config{User: "1234", Cmd: []string{"sh"}, Env: []string{images.SystemPath}, Labels: versioned("1.5")},
	},
	// A stand-in: the ipcs of busybox, on Debian for awk. A spec of node agents lists shared memory with it.
	{
		Name: suite + "ipc-utils:1.4", Layers: []layer{debian, compiledBusybox, {"ipc-utils", []source{link{"usr/bin/ipcs", "../../bin/busybox"}}}},
		Config: v1.Config{Cmd: []string{"sh"}, Env: []string{images.SystemPath}, Labels: versioned("1.4")},
	},
	// A stand-in in its version: upstream's image has the sample of v0.33.7, this one that of the
	// libraries' version. The tested API is the same.
	{
		Name: suite + "sample-apiserver:1.29.2",
		Layers: []layer{{"sample-apiserver", []source{
			program{"sample-apiserver", "k8s.io/sample-apiserver", 0o755},
			dir{"tmp", 0o1777},
		}}},
		Config: v1.Config{Entrypoint: []string{"/sample-apiserver"}, Env: []string{images.SystemPath}, Labels: versioned("1.29.2")},
	},
	// A stand-in in its version: etcd of this module's go.mod, without its clients.
	{
		Name: Registry + "/etcd:3.7.0-0",
		Layers: []layer{{"etcd", []source{
			program{"usr/local/bin/etcd", "go.etcd.io/etcd/server/v3", 0o755},
			dir{"tmp", 0o1777},
		}}},
		Config: v1.Config{Cmd: []string{"etcd"}, Env: []string{images.SystemPath}, Labels: versioned("3.7.0-0")},
	},
}

// Names returns the references of all images.
func Names() []string {
	var names []string
	for _, r := range recipes {
		names = append(names, r.Name)
	}
	return names
}
