import Type from 'typebox'
import { imageNameMax, imageNamePattern } from '../../base/image.ts'
import { collectImages, getImage, listImageJobs, listImages, removeImage, startImage } from '../../core/admin/images.ts'
import { accepted, adminOperation, noContent, type Operation, ok, okPage } from '../operation.ts'
import { listOf, named, orNull, Time } from '../schemas.ts'
import { adminGroup as group } from './orgs.ts'

const texts = Type.Record(Type.String(), Type.String())

const Image = named(
  'StoredImage',
  Type.Object({
    id: Type.String(),
    names: Type.Array(Type.String()),
    source: Type.String({ description: 'registry, layout, directory, archive or packages.' }),
    digest: Type.String({ description: 'Digest of its manifest, or of what it was made from.' }),
    created_at: Time,
    size_bytes: Type.Integer({ description: 'Disk space of its files.' }),
    files: Type.Integer(),
    layers: Type.Array(Type.String(), { description: 'Digests of its layers, which images share.' }),
    env: texts,
    workdir: Type.String(),
    user: Type.String(),
    command: Type.Array(Type.String()),
    interpreters: texts,
    python_packages: texts,
    python_packages_total: Type.Integer(),
    programs: Type.Array(Type.String()),
  }),
)

const ImageJob = named(
  'ImageJob',
  Type.Object({
    name: Type.String(),
    kind: Type.String({ description: 'pull or build.' }),
    state: Type.String({ description: 'running, done or failed.' }),
    progress: Type.Object({
      step: Type.String(),
      detail: Type.String(),
      done: Type.Integer(),
      total: Type.Integer({ description: 'Bytes or items; 0 if unknown.' }),
    }),
    problem: Type.String(),
    started_at: Time,
    ended_at: orNull(Time),
  }),
)

const NewImage = named(
  'NewImageRequest',
  Type.Object(
    {
      name: Type.String({
        pattern: imageNamePattern,
        maxLength: imageNameMax,
        description: 'Reference in a registry, such as docker.io/library/python:3.12; with packages any name.',
      }),
      packages: Type.Optional(
        Type.Array(Type.String({ pattern: '^[a-z0-9][a-z0-9+.-]{1,99}$' }), {
          maxItems: 500,
          description:
            'Debian packages to build it from, instead of pulling it. An empty list for the name data: the usual ones.',
        }),
      ),
    },
    { additionalProperties: false },
  ),
)

const Collected = named(
  'CollectedImages',
  Type.Object({ images: Type.Integer(), layers: Type.Integer(), bytes: Type.Integer() }),
)

export const imageOperations: readonly Operation[] = [
  adminOperation({
    id: 'listImages',
    method: 'GET',
    path: '/admin/v1/images',
    group,
    summary: 'List the images that are stored on the server',
    answers: { 200: listOf(Image) },
    refusals: [],
    handle: async ({ context, admin }) => okPage({ items: await listImages(context, admin), nextCursor: null }),
  }),
  adminOperation({
    id: 'addImage',
    method: 'POST',
    path: '/admin/v1/images',
    group,
    summary: 'Pull an image from a registry, or build one from Debian packages, in the background',
    body: NewImage,
    answers: { 202: ImageJob },
    refusals: [],
    handle: async ({ context, admin, body }) => accepted(startImage(context, admin, body)),
  }),
  adminOperation({
    id: 'listImageJobs',
    method: 'GET',
    path: '/admin/v1/image-jobs',
    group,
    summary: 'List pulls and builds, newest first, with their progress',
    answers: { 200: listOf(ImageJob) },
    refusals: [],
    handle: async ({ context, admin }) => okPage({ items: listImageJobs(context, admin), nextCursor: null }),
  }),
  adminOperation({
    id: 'collectImages',
    method: 'POST',
    path: '/admin/v1/image-collections',
    group,
    summary: 'Remove images without a name that are not in use, and layers that no image has',
    answers: { 200: Collected },
    refusals: [],
    handle: async ({ context, admin }) => ok(await collectImages(context, admin)),
  }),
  adminOperation({
    id: 'getImage',
    method: 'GET',
    path: '/admin/v1/images/{image}',
    group,
    summary: 'Get an image by name or ID. Slashes in the name are written as %2F',
    answers: { 200: Image },
    refusals: ['image_unknown'],
    handle: async ({ context, admin, params }) => ok(await getImage(context, admin, params.image)),
  }),
  adminOperation({
    id: 'removeImage',
    method: 'DELETE',
    path: '/admin/v1/images/{image}',
    group,
    summary: 'Remove the name of an image, and the image when it has no other name and is not in use',
    answers: { 204: null },
    refusals: ['image_unknown', 'in_use'],
    handle: async ({ context, admin, params }) => {
      await removeImage(context, admin, params.image)
      return noContent
    },
  }),
]
