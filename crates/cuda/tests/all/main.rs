//! Every kernel, on emulated devices of several seeds, against its function of `quadrille_tensor`; and compiled for real ones.

#[cfg(emulated)]
mod attention;
#[cfg(emulated)]
mod attention_tiles;
#[cfg(emulated)]
mod barriers;
#[cfg(emulated)]
mod columns;
#[cfg(emulated)]
mod cross_entropy;
#[cfg(emulated)]
mod elementwise;
#[cfg(emulated)]
mod embedding;
#[cfg(emulated)]
mod emulator;
#[cfg(emulated)]
mod experts;
#[cfg(emulated)]
mod graphs;
#[cfg(emulated)]
mod norms;
mod nvrtc;
#[cfg(emulated)]
mod perceptron;
#[cfg(emulated)]
mod random;
#[cfg(emulated)]
mod support;
#[cfg(emulated)]
mod warpgroups;

#[cfg(not(emulated))]
#[test]
fn kernels_were_skipped() {
    eprintln!("skipped: there is no C++ compiler, so no emulated device");
}
