// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import "github.com/kindred-project/kindred/internal/scheduler/model"

// imageLocality prefers nodes that already have the pod's images; large images count more. An image
// on few nodes counts less, because otherwise all pods with a new image would go to the node that
// pulled it first.
type imageLocality struct{}

func (imageLocality) Name() string { return "ImageLocality" }

const (
	mebibyte = 1024 * 1024
	// smallImages is the size below which the score is 0.
	smallImages = 23 * mebibyte
	// largeImage is the size per image above which the score does not increase.
	largeImage = 1000 * mebibyte
)

func (imageLocality) Score(cluster *model.Cluster, pod *model.Pod, nodes []*model.Node, scores []int64) {
	images := imagesOf(pod)
	spread := make([]float64, len(images))
	known := false
	for i, image := range images {
		spread[i] = float64(cluster.NodesWithImage(image)) / float64(len(cluster.Nodes()))
		known = known || spread[i] > 0
	}
	if !known {
		return
	}
	most := int64(largeImage * len(images))
	for i, node := range nodes {
		var sum int64
		for j, image := range images {
			sum += int64(float64(node.Images[image]) * spread[j])
		}
		sum = min(max(sum, smallImages), most)
		scores[i] = MaxScore * (sum - smallImages) / (most - smallImages)
	}
}

func imagesOf(pod *model.Pod) []string {
	var images []string
	for i := range pod.Spec.InitContainers {
		images = append(images, model.NormalImage(pod.Spec.InitContainers[i].Image))
	}
	for i := range pod.Spec.Containers {
		images = append(images, model.NormalImage(pod.Spec.Containers[i].Image))
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			images = append(images, model.NormalImage(image.Reference))
		}
	}
	return images
}
