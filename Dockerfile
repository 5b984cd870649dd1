# Quadrille with Open MPI: docker build -t quadrille . && docker run --rm quadrille mpirun -n 4 quadrille verify --grid x=2,y=2
FROM rust:1.95-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends libopenmpi-dev libclang-dev git && rm -rf /var/lib/apt/lists/*
WORKDIR /quadrille
COPY . .
RUN cargo install --path crates/cli --features mpi --locked --root /installed

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends openmpi-bin openssh-client && rm -rf /var/lib/apt/lists/*
COPY --from=build /installed/bin/quadrille /usr/local/bin/quadrille
# As root, with more ranks than cores, and ranks that are not bound to one: as containers are tried out.
ENV OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
WORKDIR /work
CMD ["quadrille", "--help"]
